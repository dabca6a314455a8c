//! Passes records on as they are: all that it costs is to hand them to an operator and back.

use lockgate::prelude::*;

/// See the crate.
pub struct Identity;

impl Operator for Identity {
    fn new(_: &mut Declaration) -> Identity {
        Identity
    }

    fn process(&mut self, record: Record<'_>, ctx: &mut Context<'_>) -> Result<(), Error> {
        ctx.emit(record.key(), record.value());
        Ok(())
    }
}

lockgate::export!(Identity);

#[cfg(test)]
mod tests {
    use super::*;
    use lockgate::testing::{Harness, TestRecord};

    #[test]
    fn records_pass_unchanged() {
        let mut harness = Harness::<Identity>::open().expect("no configuration");
        harness.process([("a", "1"), ("", "")]).expect("records");
        assert_eq!(harness.take_output(), [("a", "1"), ("", "")]);
    }

    #[test]
    fn so_do_event_time_headers_and_what_is_missing() {
        let mut harness = Harness::<Identity>::open().expect("no configuration");
        let records = [
            TestRecord::from(("a", "1", 5)).with_header("trace", "t").with_header("trace", ()),
            TestRecord::from((None::<&str>, "1", 6)),
            TestRecord::from(("a", None::<&str>, 7)).with_header("", ""),
        ];
        harness.process(records.clone()).expect("records");
        assert_eq!(harness.take_output(), records);
    }
}
