//! Event times of whole batches, and what is said of a record that has none.

use super::*;
use crate::connector::said;
use crate::element::{Header, Row};

/// A source of one batch.
struct Once(Option<Batch>);

impl SourceReader for Once {
    fn restore(&mut self, _: &[SplitState]) -> Result<(), ConnectorError> {
        Ok(())
    }

    fn poll(&mut self) -> Result<Polled, ConnectorError> {
        let batch = |batch| Polled::Batch { split: SplitId::new("a.json"), first_offset: 4_096, batch };
        Ok(self.0.take().map_or(Polled::Ended, batch))
    }

    fn snapshot(&self) -> Vec<SplitState> {
        Vec::new()
    }
}

fn times(values: &[Option<&str>], options: &EventTimeOptions) -> Result<Vec<i64>, ConnectorError> {
    let mut batch = Batch::with_capacity(0, 0);
    for value in values {
        batch.push(Row { key: None, value: value.map(str::as_bytes), timestamp: 77 });
        batch.push_header(Header { name: "kept", value: None });
    }
    let name = Name::new("orders").expect("a name");
    let mut reader = TimedReader::wrap(Box::new(Once(Some(batch))), &name, options);
    let Polled::Batch { batch, .. } = reader.poll()? else { panic!("a batch") };
    batch.check().expect("well formed");
    assert!((0..batch.rows as usize).all(|row| batch.headers(row).count() == 1));
    Ok(batch.iter().map(|row| row.timestamp).collect())
}

fn json(on_missing: OnMissing) -> EventTimeOptions {
    EventTimeOptions { from: TimeFrom::Json("/at".parse().expect("a pointer")), unit: TimeUnit::Ms, on_missing }
}

fn csv(unit: TimeUnit) -> EventTimeOptions {
    EventTimeOptions { from: TimeFrom::Csv { column: 1, separator: b',' }, unit, on_missing: OnMissing::Fail }
}

#[test]
fn every_record_gets_the_event_time_in_its_value() {
    let values = [Some(r#"{"at":5}"#), Some(r#"{"x":[],"at":"-7"}"#)];
    assert_eq!(times(&values, &json(OnMissing::Fail)).expect("all have one"), [5, -7]);
    let values = [Some("a,1.5,c"), Some("b,\"2\"")];
    assert_eq!(times(&values, &csv(TimeUnit::S)).expect("all have one"), [1_500, 2_000]);
    let dates = times(&[Some("x,2015-07-15T00:00:00Z")], &csv(TimeUnit::Rfc3339));
    assert_eq!(dates.expect("a date"), [1_436_918_400_000]);
    assert_eq!(times(&[Some("x")], &EventTimeOptions::default()).expect("its own"), [77]);
    let none = EventTimeOptions { from: TimeFrom::None, ..EventTimeOptions::default() };
    assert_eq!(times(&[Some("x")], &none).expect("none"), [NO_TIMESTAMP]);
}

#[test]
fn what_has_no_event_time_fails_or_has_none_as_the_job_file_says() {
    for value in
        [None, Some("{}"), Some("no json"), Some(r#"{"at":null}"#), Some(r#"{"at":"soon"}"#), Some(r#"{"at":{}}"#)]
    {
        assert_eq!(times(&[value], &json(OnMissing::None)).expect("none"), [NO_TIMESTAMP], "{value:?}");
        let refused = times(&[Some(r#"{"at":1}"#), value], &json(OnMissing::Fail)).expect_err("no event time");
        let said = said(&refused);
        assert!(said.starts_with("orders: record 1 from offset 4096 of split 'a.json' has "), "{said}");
        let shown = value.map_or(String::new(), str::to_owned);
        assert!(said.contains(&format!("it is '{shown}'")), "quotes stay as they are: {said}");
        assert!(said.contains("[source.orders.event_time]") && said.contains("on_missing = \"none\""), "{said}");
    }
    let said = said(&times(&[Some("a,,c")], &csv(TimeUnit::Ms)).expect_err("an empty column"));
    assert!(said.contains("has no event time: column 1 is empty; it is 'a,,c'"), "{said}");
}

#[test]
fn an_event_time_out_of_range_is_an_error_or_none_as_a_missing_one_is() {
    for value in ["9223372036854775807", "-9223372036854775808", "18446744073709551615", "1e300", "8640000000000001"] {
        let value = format!(r#"{{"at":{value}}}"#);
        assert_eq!(times(&[Some(&value)], &json(OnMissing::None)).expect("none"), [NO_TIMESTAMP], "{value}");
        let said = said(&times(&[Some(&value)], &json(OnMissing::Fail)).expect_err("out of range"));
        assert!(
            said.contains("record 0 from offset 4096 of split 'a.json' has an event time that can't be read"),
            "{said}"
        );
        assert!(
            said.contains("milliseconds is more than 100,000,000 days from 1970") && said.contains("set unit"),
            "{said}"
        );
    }
}
