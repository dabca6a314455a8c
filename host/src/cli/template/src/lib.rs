//! Says how often each key has been seen, once it has been seen often enough.

use lockgate::prelude::*;

/// The `config` table of the operator in the job file.
#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Config {
    /// Counts below this are not sent.
    at_least: u64,
}

impl Default for Config {
    fn default() -> Config {
        Config { at_least: 1 }
    }
}

/// The operator: its configuration, and handles to its state.
pub struct Tally {
    config: Config,
    counts: Value<u64>,
}

impl Operator for Tally {
    fn new(declare: &mut Declaration) -> Tally {
        Tally { config: Config::default(), counts: declare.value("counts") }
    }

    fn open(&mut self, ctx: &mut OpenContext<'_>) -> Result<(), Error> {
        self.config = ctx.config()?;
        Ok(())
    }

    fn process(&mut self, record: Record<'_>, ctx: &mut Context<'_>) -> Result<(), Error> {
        // State is that of the record's key. The host keeps it safe, also when the job crashes.
        let count = self.counts.update(ctx, |count| count.unwrap_or(0) + 1)?;
        if count >= self.config.at_least {
            ctx.emit_fmt(record.key(), format_args!("{}\t{count}", record.key_str()?));
        }
        Ok(())
    }
}

lockgate::export!(Tally);

#[cfg(test)]
mod tests {
    use super::*;
    use lockgate::testing::Harness;

    #[test]
    fn keys_are_sent_once_they_have_been_seen_often_enough() -> Result<(), Error> {
        let mut harness = Harness::<Tally>::open_with(r#"{"at_least": 2}"#)?;
        harness.process([("tea", ""), ("oil", ""), ("tea", "")])?;
        assert_eq!(harness.take_output(), [("tea", "tea\t2")]);
        assert_eq!(harness.value::<u64>("counts", "oil"), Some(1));
        Ok(())
    }

    #[test]
    fn counts_go_on_after_a_crash() -> Result<(), Error> {
        let mut harness = Harness::<Tally>::open()?;
        harness.process([("tea", "")])?;
        harness.snapshot()?;
        harness.process([("tea", "")])?;
        harness.recover()?; // the source replays what came after the snapshot
        harness.process([("tea", "")])?;
        assert_eq!(harness.take_output(), [("tea", "tea\t2")]);
        Ok(())
    }
}
