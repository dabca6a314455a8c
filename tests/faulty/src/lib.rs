//! Copies records, but does wrong at one whose value (if it has none, whose key) tells it to: `panic`, `spin`, `hoard`, `recurse`,
//! `flood`, `refuse`, `give up`, `later` or `later than MS`. With `tolerant = true` in its configuration it copies those as well. With
//! `numbered = true` each copy has its number in front, which is kept in state that is in no table.

use std::hint::black_box;

use lockgate::prelude::*;

#[derive(Default, serde::Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Config {
    tolerant: bool,
    numbered: bool,
}

/// See the crate.
pub struct Faulty {
    config: Config,
    seen: u64,
}

impl Operator for Faulty {
    fn new(_: &mut Declaration) -> Faulty {
        Faulty { config: Config::default(), seen: 0 }
    }

    fn open(&mut self, ctx: &mut OpenContext<'_>) -> Result<(), Error> {
        self.config = ctx.config()?;
        Ok(())
    }

    fn process(&mut self, record: Record<'_>, ctx: &mut Context<'_>) -> Result<(), Error> {
        self.seen += 1;
        // Sent before the fault, so that it shows if a failed call has any effect.
        if self.config.numbered {
            let line = String::from_utf8_lossy(record.value().unwrap_or_default());
            ctx.emit_fmt(record.key(), format_args!("{} {line}", self.seen));
        } else {
            ctx.emit(record.key(), record.value());
        }
        if !self.config.tolerant {
            do_wrong(record.value().or(record.key()).unwrap_or_default(), ctx)?;
        }
        Ok(())
    }

    fn snapshot(&mut self) -> Result<Vec<u8>, Error> {
        Ok(self.seen.to_le_bytes().to_vec())
    }

    fn restore(&mut self, states: &[Vec<u8>]) -> Result<(), Error> {
        for state in states {
            let seen = state.as_slice().try_into().map_err(Error::fatal)?;
            self.seen += u64::from_le_bytes(seen);
        }
        Ok(())
    }
}

fn do_wrong(fault: &[u8], ctx: &mut Context<'_>) -> Result<(), Error> {
    match fault {
        b"panic" => panic!("the record says so"),
        b"spin" => loop {
            black_box(());
        },
        b"hoard" => {
            let mut hoard = Vec::new();
            loop {
                hoard.push(black_box(vec![1u8; 1 << 20]));
            }
        }
        b"recurse" => Err(Error::fatal(recurse(1))),
        b"recurse widely" => Err(Error::fatal(recurse_widely(1))),
        b"flood" => loop {
            ctx.emit((), [0u8; 1 << 10].as_slice());
        },
        b"refuse" => Err(Error::bad_record("it is not to my taste")),
        b"give up" => Err(Error::fatal("nothing will help")),
        b"later" => Err(Error::transient("not today")),
        other => match until_ms(other) {
            Some(until_ms) if ctx.now() < until_ms => Err(Error::transient("not yet")),
            Some(_) | None => Ok(()),
        },
    }
}

/// A failure that passes: at which time of day.
fn until_ms(fault: &[u8]) -> Option<i64> {
    std::str::from_utf8(fault.strip_prefix(b"later than ")?).ok()?.parse().ok()
}

#[expect(unconditional_recursion, reason = "it is the fault that is asked for")]
fn recurse(depth: u64) -> u64 {
    // Work after the call keeps it a call.
    black_box(recurse(black_box(depth + 1)) + 1)
}

/// As [`recurse`], but needs much of the stack that the compiler keeps in memory, so that this one is used up first.
#[expect(unconditional_recursion, reason = "it is the fault that is asked for")]
fn recurse_widely(depth: u64) -> u64 {
    let wide = black_box([depth; 512]);
    black_box(recurse_widely(wide[depth as usize % 512] + 1) + 1)
}

lockgate::export!(Faulty);
