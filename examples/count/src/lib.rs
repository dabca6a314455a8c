//! Counts the records of each key: for each one it sends the key with `key<tab>count`.

use lockgate::prelude::*;

/// See the crate.
pub struct Count {
    counts: Value<u64>,
}

impl Operator for Count {
    fn new(declare: &mut Declaration) -> Count {
        Count { counts: declare.value("counts") }
    }

    fn process(&mut self, record: Record<'_>, ctx: &mut Context<'_>) -> Result<(), Error> {
        let count = self.counts.update(ctx, |count| count.unwrap_or(0) + 1)?;
        let key = record.key().unwrap_or_default();
        ctx.emit_with(key, |value| {
            value.bytes(key);
            value.byte(b'\t');
            value.integer(count);
        });
        Ok(())
    }
}

lockgate::export!(Count);

#[cfg(test)]
mod tests {
    use super::*;
    use lockgate::ErrorKind;
    use lockgate::testing::Harness;

    #[test]
    fn every_record_of_a_key_raises_its_count() {
        let mut harness = Harness::<Count>::open().expect("no configuration");
        harness.process([("tea", ()), ("oil", ()), ("tea", ())]).expect("records with keys");
        assert_eq!(harness.take_output(), [("tea", "tea\t1"), ("oil", "oil\t1"), ("tea", "tea\t2")]);
    }

    #[test]
    fn counts_survive_a_crash_as_of_the_last_snapshot() {
        let mut harness = Harness::<Count>::open().expect("no configuration");
        harness.process([("tea", ()), ("tea", ())]).expect("records with keys");
        harness.snapshot().expect("a snapshot");
        harness.process([("tea", ())]).expect("a record with a key");
        harness.recover().expect("the snapshot");
        harness.process([("tea", ())]).expect("a record with a key");
        assert_eq!(harness.take_output(), [("tea", "tea\t3")]);
    }

    #[test]
    fn a_record_without_a_key_is_a_bad_record() {
        let mut harness = Harness::<Count>::open().expect("no configuration");
        let error = harness.process([(Some("tea"), ()), (None, ())]).expect_err("no key");
        assert_eq!((error.kind(), error.row()), (ErrorKind::BadRecord, Some(1)));
    }
}
