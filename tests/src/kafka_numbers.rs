//! Numbered records, and what a copy of them must be: each number once, those of a key in their order and in one partition.
//!
//! Invariant: the verdict is made from the numbers alone, without anything that the host says.

use std::collections::HashMap;
use std::ops::Range;

use crate::kafka::{NewRecord, Record};

/// How many keys there are. Each has many records, and each partition many keys.
const KEYS: u64 = 40;
/// Digits of a value, before what fills it up.
const DIGITS: usize = 12;

/// What is wrong with a copy.
#[derive(Debug, PartialEq, Eq)]
pub enum Wrong {
    Malformed { record: Record },
    WrongKey { number: u64, key: String },
    Unknown { number: u64 },
    Twice { number: u64, records: usize },
    Missing { first: u64, missing: u64 },
    OutOfOrder { key: String, before: u64, after: u64 },
    TwoPartitions { key: String },
}

fn key_of(number: u64) -> String {
    format!("key-{}", number % KEYS)
}

fn value_of(number: u64, bytes: usize) -> String {
    let digits = format!("{number:0DIGITS$}");
    let filling = "x".repeat(bytes.saturating_sub(DIGITS));
    digits + &filling
}

/// The numbers of a range as records with short values.
pub fn numbered(numbers: Range<u64>) -> Vec<NewRecord> {
    numbers.map(|number| NewRecord::keyed(key_of(number), value_of(number, DIGITS))).collect()
}

/// The same as lines for [`kcat_produce`](crate::kafka::kcat_produce), with values of so many bytes.
pub fn numbered_lines(numbers: Range<u64>, bytes: usize) -> Vec<u8> {
    numbers.flat_map(|number| format!("{}\t{}\n", key_of(number), value_of(number, bytes)).into_bytes()).collect()
}

/// The number of a value.
pub fn number_of(value: &str) -> Option<u64> {
    let digits = value.get(..DIGITS)?;
    let is_filled = value[DIGITS..].bytes().all(|byte| byte == b'x');
    digits.parse().ok().filter(|_| is_filled)
}

/// What a set of records is, when those of all numbers below `count` are wanted.
pub struct Copied {
    /// How often each number was seen.
    seen: Vec<u32>,
    /// The first wrong thing that is seen in a single record or in the order.
    wrong: Option<Wrong>,
    records: usize,
}

impl Copied {
    /// Takes a topic as it was read: partition by partition, in order of offset.
    pub fn of(count: u64, records: &[Record]) -> Copied {
        let mut copied = Copied { seen: vec![0; count as usize], wrong: None, records: records.len() };
        let mut last = HashMap::<u64, (i32, u64)>::new();
        for record in records {
            if let Err(wrong) = copied.see(record, &mut last) {
                copied.wrong.get_or_insert(wrong);
            }
        }
        copied
    }

    fn see(&mut self, record: &Record, last: &mut HashMap<u64, (i32, u64)>) -> Result<(), Wrong> {
        let value = record.value.as_deref().and_then(|value| std::str::from_utf8(value).ok());
        let malformed = || Wrong::Malformed { record: record.clone() };
        let number = value.and_then(number_of).ok_or_else(malformed)?;
        let seen = self.seen.get_mut(number as usize).ok_or(Wrong::Unknown { number })?;
        *seen += 1;
        let key = key_of(number);
        if record.key.as_deref() != Some(key.as_bytes()) {
            return Err(Wrong::WrongKey { number, key: format!("{:?}", record.key) });
        }
        match last.insert(number % KEYS, (record.partition, number)) {
            Some((partition, _)) if partition != record.partition => Err(Wrong::TwoPartitions { key }),
            Some((_, before)) if before > number => Err(Wrong::OutOfOrder { key, before, after: number }),
            Some(_) | None => Ok(()),
        }
    }

    /// Numbers that are not there.
    pub fn missing(&self) -> u64 {
        self.seen.iter().filter(|&&seen| seen == 0).count() as u64
    }

    /// Numbers that are there more than once.
    pub fn doubled(&self) -> u64 {
        self.seen.iter().filter(|&&seen| seen > 1).count() as u64
    }

    /// # Errors
    /// The first thing found wrong, if it isn't each number once and in order.
    pub fn exactly_once(self) -> Result<(), Wrong> {
        let number = |place: usize| place as u64;
        if let Some(place) = self.seen.iter().position(|&seen| seen > 1) {
            return Err(Wrong::Twice { number: number(place), records: self.records });
        }
        if let Some(place) = self.seen.iter().position(|&seen| seen == 0) {
            return Err(Wrong::Missing { first: number(place), missing: self.missing() });
        }
        self.wrong.map_or(Ok(()), Err)
    }
}

/// # Panics
/// Unless the records are those of all numbers below `count`, each once, in order by key.
#[track_caller]
pub fn assert_exactly_once(count: u64, records: &[Record]) {
    let verdict = Copied::of(count, records).exactly_once();
    assert_eq!(verdict, Ok(()), "{count} records should be there exactly once and in order; {} are", records.len());
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(partition: i32, number: u64) -> Record {
        let (key, value) = (Some(key_of(number).into_bytes()), Some(value_of(number, 20).into_bytes()));
        Record { partition, offset: 0, timestamp: 0, key, value, headers: Vec::new() }
    }

    fn verdict(count: u64, records: &[Record]) -> Result<(), Wrong> {
        Copied::of(count, records).exactly_once()
    }

    #[test]
    fn a_whole_copy_in_order_by_key_is_accepted() {
        let records = [record(0, 0), record(0, 40), record(1, 1), record(1, 41)];
        let others = (2..40).map(|number| record(0, number));
        assert_eq!(verdict(42, &records.into_iter().chain(others).collect::<Vec<_>>()), Ok(()));
    }

    #[test]
    fn every_kind_of_wrong_copy_is_found() {
        let key = || "key-0".to_owned();
        let all = || (0..41).map(|number| record(0, number)).collect::<Vec<_>>();
        let swapped = [&all()[40..], &all()[..40]].concat();
        assert_eq!(verdict(41, &swapped), Err(Wrong::OutOfOrder { key: key(), before: 40, after: 0 }));
        let apart = [&all()[..40], &[record(1, 40)]].concat();
        assert_eq!(verdict(41, &apart), Err(Wrong::TwoPartitions { key: key() }));
        assert_eq!(verdict(41, &all()[1..]), Err(Wrong::Missing { first: 0, missing: 1 }));
        let twice = [all(), vec![record(0, 3)]].concat();
        assert_eq!(verdict(41, &twice), Err(Wrong::Twice { number: 3, records: 42 }));
        assert_eq!(verdict(41, &[all(), vec![record(0, 50)]].concat()), Err(Wrong::Unknown { number: 50 }));
        let renamed = Record { key: None, ..record(0, 0) };
        assert!(matches!(verdict(1, &[renamed]), Err(Wrong::WrongKey { number: 0, .. })));
        let cut = Record { value: Some(b"00000".to_vec()), ..record(0, 0) };
        assert!(matches!(Copied::of(1, &[cut]).wrong, Some(Wrong::Malformed { .. })));
    }

    #[test]
    fn lines_and_records_say_the_same() {
        assert_eq!(numbered_lines(41..42, 14), b"key-1\t000000000041xx\n");
        assert_eq!(numbered(41..42)[0].value.as_deref(), Some(&b"000000000041"[..]));
        assert_eq!((number_of("000000000041xx"), number_of("000000000041xy"), number_of("41")), (Some(41), None, None));
    }
}
