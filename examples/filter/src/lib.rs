//! Parses lines `id,key,value,rest`, keeps those with an even value and writes them anew with the value doubled.
//!
//! Stateless work on every byte of a record: what the benchmarks compare WebAssembly with native code by. The output keeps
//! the input's key; numbers lose their leading zeros.

use lockgate::prelude::*;
use lockgate::text::leading_integer;

/// See the crate.
pub struct Filter;

/// A line, taken apart.
struct Line<'a> {
    id: u64,
    key: u64,
    value: u32,
    rest: &'a [u8],
}

impl Operator for Filter {
    fn new(_: &mut Declaration) -> Filter {
        Filter
    }

    fn process(&mut self, record: Record<'_>, ctx: &mut Context<'_>) -> Result<(), Error> {
        let line = Line::parse(record.value().unwrap_or_default()).ok_or_else(not_a_line)?;
        if line.value % 2 == 0 {
            ctx.emit_with(record.key(), |value| {
                value.integer(line.id);
                value.byte(b',');
                value.integer(line.key);
                value.byte(b',');
                value.integer(line.value * 2);
                value.byte(b',');
                value.bytes(line.rest);
            });
        }
        Ok(())
    }
}

#[cold]
fn not_a_line() -> Error {
    Error::bad_record("the value is not a line 'id,key,value,rest'")
}

impl Line<'_> {
    fn parse(text: &[u8]) -> Option<Line<'_>> {
        let (id, text) = number(text)?;
        let (key, text) = number(text)?;
        let (value, rest) = number(text)?;
        Some(Line { id, key, value: u32::try_from(value).ok().filter(|&value| value <= u32::MAX / 2)?, rest })
    }
}

/// A number and what follows its comma.
#[inline]
fn number(text: &[u8]) -> Option<(u64, &[u8])> {
    let (number, rest) = leading_integer(text)?;
    Some((number, rest.strip_prefix(b",")?))
}

lockgate::export!(Filter);

#[cfg(test)]
mod tests {
    use super::*;
    use lockgate::testing::{Harness, TestRecord};

    #[test]
    fn lines_with_an_even_value_are_written_anew() {
        let mut harness = Harness::<Filter>::open().expect("no configuration");
        let lines = ["000000000012,0000000007,0042,pad", "000000000013,0000000008,0043,pad", "0,0,0,"];
        harness.process(lines.map(|line| ("k", line))).expect("lines");
        assert_eq!(harness.take_output(), [("k", "12,7,84,pad"), ("k", "0,0,0,")]);
    }

    #[test]
    fn lines_keep_their_event_time_and_headers() {
        let mut harness = Harness::<Filter>::open().expect("no configuration");
        let line = |line, number| TestRecord::from(("k", line, 5)).with_header("number", number);
        harness.process([line("1,1,1,", "0"), line("1,1,2,", "1")]).expect("lines");
        assert_eq!(harness.take_output(), [line("1,1,4,", "1")]);
    }

    #[test]
    fn what_is_not_such_a_line_is_a_bad_record() {
        let wrong =
            ["", "1,2,3", "1,2,x,pad", ",2,4,pad", "1,2,-4,pad", "1,2,4294967296,pad", "18446744073709551616,2,4,pad"];
        for line in wrong {
            let mut harness = Harness::<Filter>::open().expect("no configuration");
            let error = harness.process([("k", "1,1,1,"), ("k", line)]).expect_err(line);
            assert_eq!(error.row(), Some(1), "{line}");
        }
    }
}
