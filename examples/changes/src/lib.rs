//! Lets a record through only if its value differs from the last one of its key: makes a stream of changes of a stream of
//! readings.

use lockgate::prelude::*;

/// See the crate.
pub struct Changes {
    last: Value<Vec<u8>>,
}

impl Operator for Changes {
    fn new(declare: &mut Declaration) -> Changes {
        Changes { last: declare.value("last") }
    }

    fn process(&mut self, record: Record<'_>, ctx: &mut Context<'_>) -> Result<(), Error> {
        let value = record.value().unwrap_or_default();
        if self.last.get(ctx)?.is_some_and(|last| last.as_slice() == value) {
            return Ok(());
        }
        self.last.set(ctx, value.to_vec())?;
        ctx.emit(record.key(), record.value());
        Ok(())
    }
}

lockgate::export!(Changes);

#[cfg(test)]
mod tests {
    use super::*;
    use lockgate::testing::Harness;

    #[test]
    fn only_changes_pass() {
        let mut harness = Harness::<Changes>::open().expect("no configuration");
        harness.process([("a", "1"), ("b", "1"), ("a", "1"), ("a", "2"), ("a", "1")]).expect("records with keys");
        assert_eq!(harness.take_output(), [("a", "1"), ("b", "1"), ("a", "2"), ("a", "1")]);
    }

    #[test]
    fn what_was_seen_is_known_after_a_crash() {
        let mut harness = Harness::<Changes>::open().expect("no configuration");
        harness.process([("a", "1")]).expect("a record with a key");
        harness.snapshot().expect("a snapshot");
        harness.recover().expect("the snapshot");
        harness.take_output();
        harness.process([("a", "1"), ("a", "2")]).expect("records with keys");
        assert_eq!(harness.take_output(), [("a", "2")]);
    }
}
