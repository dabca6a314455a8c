//! Counts the records of each key and says who has counted: `old<tab>KEY<tab>COUNT<tab>SEEN`, or `new`. SEEN is how many records this
//! subtask has had in all, which is kept in state that is in no table.
//!
//! With `fault = "open"` in its configuration, or `"restore"`, `"process"`, `"snapshot"`, the new edition panics there.

use lockgate::prelude::*;

#[derive(Default, serde::Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Config {
    fault: String,
}

/// See the crate; `NEW` says which edition it is.
pub struct Tally<const NEW: bool> {
    config: Config,
    counts: Value<u64>,
    seen: u64,
}

impl<const NEW: bool> Tally<NEW> {
    fn fails_at(&self, place: &str) {
        assert!(!NEW || self.config.fault != place, "the new edition fails at {place}");
    }
}

impl<const NEW: bool> Operator for Tally<NEW> {
    fn new(declare: &mut Declaration) -> Tally<NEW> {
        Tally { config: Config::default(), counts: declare.value("counts"), seen: 0 }
    }

    fn open(&mut self, ctx: &mut OpenContext<'_>) -> Result<(), Error> {
        self.config = ctx.config()?;
        self.fails_at("open");
        Ok(())
    }

    fn process(&mut self, record: Record<'_>, ctx: &mut Context<'_>) -> Result<(), Error> {
        self.fails_at("process");
        let edition = if NEW { "new" } else { "old" };
        let key = record.key_str()?;
        let count = self.counts.update(ctx, |count| count.unwrap_or(0) + 1)?;
        self.seen += 1;
        ctx.emit_fmt(key, format_args!("{edition}\t{key}\t{count}\t{}", self.seen));
        Ok(())
    }

    fn snapshot(&mut self) -> Result<Vec<u8>, Error> {
        self.fails_at("snapshot");
        Ok(self.seen.to_le_bytes().to_vec())
    }

    fn restore(&mut self, states: &[Vec<u8>]) -> Result<(), Error> {
        self.fails_at("restore");
        for state in states {
            let seen = state.as_slice().try_into().map_err(Error::fatal)?;
            self.seen += u64::from_le_bytes(seen);
        }
        Ok(())
    }
}

#[cfg(feature = "old")]
lockgate::export!(Tally<false>);
#[cfg(all(feature = "new", not(feature = "old")))]
lockgate::export!(Tally<true>);
