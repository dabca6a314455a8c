//! Copies records, but does wrong at one whose value tells it to: `panic`, `spin`, `hoard`, `recurse`, `flood` or `refuse`.
//! With `tolerant = true` in its configuration it copies those as well.

use std::hint::black_box;

use lockgate::prelude::*;

#[derive(Default, serde::Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Config {
    tolerant: bool,
}

/// See the crate.
pub struct Faulty {
    config: Config,
}

impl Operator for Faulty {
    fn new(_: &mut Declaration) -> Faulty {
        Faulty { config: Config::default() }
    }

    fn open(&mut self, ctx: &mut OpenContext<'_>) -> Result<(), Error> {
        self.config = ctx.config()?;
        Ok(())
    }

    fn process(&mut self, record: Record<'_>, ctx: &mut Context<'_>) -> Result<(), Error> {
        // Sent before the fault, so that it shows if a failed call has any effect.
        ctx.emit(record.key(), record.value());
        if !self.config.tolerant {
            do_wrong(record.value().unwrap_or_default(), ctx)?;
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
        b"flood" => loop {
            ctx.emit((), [0u8; 1 << 10].as_slice());
        },
        b"refuse" => Err(Error::bad_record("it is not to my taste")),
        _ => Ok(()),
    }
}

#[expect(unconditional_recursion, reason = "it is the fault that is asked for")]
fn recurse(depth: u64) -> u64 {
    // Work after the call keeps it a call.
    black_box(recurse(black_box(depth + 1)) + 1)
}

lockgate::export!(Faulty);
