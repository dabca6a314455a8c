//! The generator source: deterministic records for benchmarks, demos and tests.
//!
//! Kind `csv` makes the 100-byte lines `id(12),key(10),val(4),pad(71)` of the Flink benchmark jobs, `sequence` the number
//! alone, `words` lines of text for word counts. Record `n` is a function of `n` and the options, see [`NumberedReader`].

use serde::Deserialize;

use super::numbered::{MakeRecords, NumberedReader, Numbers};
use super::{BadOption, ConnectorContext, ConnectorError, missing_keys};
use crate::element::{Batch, Column, NO_TIMESTAMP, Row};

/// `type = "generator"`.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct GeneratorOptions {
    pub kind: GeneratorKind,
    /// How many records there are in all; the source ends after them. Without it, it never ends.
    pub count: Option<u64>,
    /// How many keys there are, 1 to 10,000,000,000 (`csv`, `sequence`).
    pub keys: u64,
    pub key_order: KeyOrder,
    /// Whether records have a key: 10 digits. By default those of `csv` and `sequence` do; those of `words` can't.
    pub keyed: Option<bool>,
    /// How many words there are (`words`).
    pub vocabulary: u32,
    /// Records a second in all. Without it, as fast as they are taken.
    pub rate: Option<f64>,
    /// How many splits the numbers are dealt to; at least the parallelism. Fixed for the life of a job's state.
    pub splits: u32,
    pub event_time: EventTime,
}

impl Default for GeneratorOptions {
    fn default() -> GeneratorOptions {
        GeneratorOptions {
            kind: GeneratorKind::Csv,
            count: None,
            keys: 100_000,
            key_order: KeyOrder::Random,
            keyed: None,
            vocabulary: 10_000,
            rate: None,
            splits: 64,
            event_time: EventTime::None,
        }
    }
}

/// What a record's value is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum GeneratorKind {
    /// The record's number in decimal digits.
    Sequence,
    /// `id(12),key(10),val(4),pad(71)`: 100 bytes.
    Csv,
    /// A line of 4 to 12 words, see [`words_line`].
    Words,
}

/// Which key a record has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum KeyOrder {
    /// A hash of the number, modulo `keys`.
    Random,
    /// `number * 7654321 % keys`: each run of `keys` records has every key once (if 7654321 and `keys` have no common factor).
    Permuted,
}

/// The event time of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum EventTime {
    None,
    /// The record's number in milliseconds since the Unix epoch.
    Id,
}

const CSV_BYTES: usize = 100;
const KEY_BYTES: usize = 10;
/// Ids have twelve digits.
const COUNT_MAX: u64 = 1_000_000_000_000;
const KEYS_MAX: u64 = 10_000_000_000;

impl GeneratorOptions {
    pub(super) fn validate(&self) -> Result<(), BadOption> {
        self.numbers().validate()?;
        if self.count.is_some_and(|count| count > COUNT_MAX) {
            return Err(BadOption::new("count", self.count.unwrap_or_default(), "it is at most a million million"));
        }
        if !(1..=KEYS_MAX).contains(&self.keys) {
            return Err(BadOption::new("keys", self.keys, "it must be 1 to 10,000,000,000"));
        }
        if self.vocabulary == 0 {
            return Err(BadOption::new("vocabulary", 0, "there must be a word"));
        }
        if self.kind == GeneratorKind::Words && self.keyed == Some(true) {
            return Err(BadOption::new("keyed", true, "lines of words have no key"));
        }
        Ok(())
    }

    fn numbers(&self) -> Numbers {
        Numbers { splits: self.splits, count: self.count, rate: self.rate }
    }
}

/// One subtask of the generator.
pub type GeneratorReader = NumberedReader<Maker>;

impl GeneratorReader {
    pub(super) fn open(
        options: &GeneratorOptions,
        ctx: &ConnectorContext,
        subtask: u32,
    ) -> Result<GeneratorReader, ConnectorError> {
        let keyed = options.keyed.unwrap_or(options.kind != GeneratorKind::Words);
        let maker = Maker { options: options.clone(), keyed, template: csv_template(), line: Vec::new() };
        NumberedReader::new(options.numbers(), maker, ctx, subtask)
    }
}

/// Makes the records.
pub struct Maker {
    options: GeneratorOptions,
    keyed: bool,
    template: [u8; CSV_BYTES],
    line: Vec<u8>,
}

impl MakeRecords for Maker {
    fn value_bytes(&self) -> usize {
        match self.options.kind {
            GeneratorKind::Sequence => 12,
            GeneratorKind::Csv => CSV_BYTES,
            GeneratorKind::Words => 48,
        }
    }

    fn make(&mut self, first: u64, n: u64, batch: &mut Batch) {
        match self.options.kind {
            GeneratorKind::Csv => self.push_csv(first, n as usize, batch),
            GeneratorKind::Sequence => (first..first + n).for_each(|id| self.push_sequence(id, batch)),
            GeneratorKind::Words => (first..first + n).for_each(|id| self.push_words(id, batch)),
        }
    }
}

impl Maker {
    fn timestamp(&self, id: u64) -> i64 {
        match self.options.event_time {
            EventTime::None => NO_TIMESTAMP,
            EventTime::Id => id as i64,
        }
    }

    /// The key of a record, from the upper 63 bits of its hash as Java computes them.
    #[inline]
    fn key(&self, id: u64, hash: u64) -> u64 {
        match self.options.key_order {
            KeyOrder::Random => hash % self.options.keys,
            KeyOrder::Permuted => id % self.options.keys * 7_654_321 % self.options.keys,
        }
    }

    /// All lines of a batch have one size, so that they are written in place.
    fn push_csv(&self, first: u64, n: usize, batch: &mut Batch) {
        let upper_digits = |id: u64| digits8(id / 10_000 % 100_000_000);
        let mut upper = upper_digits(first);
        push_fixed_offsets(&mut batch.values, CSV_BYTES, n);
        if self.keyed {
            push_fixed_offsets(&mut batch.keys, KEY_BYTES, n);
        } else {
            batch.keys.offsets.resize(batch.keys.offsets.len() + n * 4, 0);
            batch.nulls = missing_keys(batch.rows as usize + n);
        }
        for id in (first..).take(n) {
            if id % 10_000 == 0 {
                upper = upper_digits(id);
            }
            let key = self.push_csv_line(id, upper, &mut batch.values.data);
            if self.keyed {
                batch.keys.data.extend_from_slice(&key);
            }
        }
        let timestamps = batch.timestamps.len();
        batch.timestamps.resize(timestamps + n * 8, 0);
        for (id, timestamp) in (first..).zip(batch.timestamps[timestamps..].as_chunks_mut::<8>().0) {
            *timestamp = self.timestamp(id).to_le_bytes();
        }
        batch.rows += n as u32;
    }

    /// `upper` are the eight digits of the id before its last four. Gives the key.
    #[inline]
    fn push_csv_line(&self, id: u64, upper: [u8; 8], lines: &mut Vec<u8>) -> [u8; KEY_BYTES] {
        let hash = mix(id) >> 1;
        let key = key_digits(self.key(id, hash));
        lines.extend_from_slice(&self.template);
        let line = lines.last_chunk_mut::<CSV_BYTES>().expect("it was just added");
        line[..8].copy_from_slice(&upper);
        line[8..12].copy_from_slice(&digits4((id % 10_000) as u32));
        line[13..23].copy_from_slice(&key);
        line[24..28].copy_from_slice(&digits4(((hash >> 40) % 10_000) as u32));
        line[29..37].copy_from_slice(&nibbles8(hash));
        key
    }

    fn push_sequence(&mut self, id: u64, batch: &mut Batch) {
        let mut digits = [0; 20];
        let mut start = digits.len();
        let mut rest = id;
        loop {
            start -= 1;
            digits[start] = b'0' + (rest % 10) as u8;
            rest /= 10;
            if rest == 0 {
                break;
            }
        }
        let key = key_digits(self.key(id, mix(id) >> 1));
        let key = self.keyed.then_some(&key[..]);
        batch.push(Row { key, value: Some(&digits[start..]), timestamp: self.timestamp(id) });
    }

    fn push_words(&mut self, id: u64, batch: &mut Batch) {
        self.line.clear();
        words_line(id, self.options.vocabulary, &mut self.line);
        batch.push(Row { key: None, value: Some(&self.line), timestamp: self.timestamp(id) });
    }
}

/// Adds line `number` of the `words` kind to `line`, without a line end.
///
/// `h = splitmix64(number)`; there are `4 + h % 9` words with a space between them; for each `h = splitmix64(h)` and the
/// word is that of `h % vocabulary`: its digits to base 26, the least significant first, as letters `a` to `z`, and at least
/// three of them.
///
/// # Panics
/// If `vocabulary` is 0.
pub fn words_line(number: u64, vocabulary: u32, line: &mut Vec<u8>) {
    let mut hash = mix(number);
    let words = 4 + hash % 9;
    for word in 0..words {
        if word > 0 {
            line.push(b' ');
        }
        hash = mix(hash);
        let mut rest = hash % u64::from(vocabulary);
        let mut letters = 0;
        while letters < 3 || rest > 0 {
            line.push(b'a' + (rest % 26) as u8);
            rest /= 26;
            letters += 1;
        }
    }
}

/// One step of splitmix64 (Steele, Lea, Flood 2014), as the benchmark jobs of other engines use it.
#[inline]
fn mix(number: u64) -> u64 {
    let mut z = number.wrapping_add(0x9E37_79B9_7F4A_7C15);
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

/// The decimal digits of a key.
#[inline]
fn key_digits(key: u64) -> [u8; KEY_BYTES] {
    let mut digits = [0; KEY_BYTES];
    digits[..2].copy_from_slice(&digits4((key / 100_000_000) as u32)[2..]);
    digits[2..].copy_from_slice(&digits8(key % 100_000_000));
    digits
}

/// The eight decimal digits of a number below 10^8, all at once: halves, pairs and digits are split in the lanes of one u64.
#[inline]
fn digits8(number: u64) -> [u8; 8] {
    let halves = (number / 10_000) | ((number % 10_000) << 32);
    let hundreds = (halves.wrapping_mul(10_486) >> 20) & 0x7f_0000_007f;
    let pairs = hundreds | halves.wrapping_sub(hundreds.wrapping_mul(100)) << 16;
    let tens = (pairs.wrapping_mul(103) >> 10) & 0x000f_000f_000f_000f;
    let digits = tens | pairs.wrapping_sub(tens.wrapping_mul(10)) << 8;
    (digits | 0x3030_3030_3030_3030).to_le_bytes()
}

/// The four decimal digits of a number below 10^4, likewise.
#[inline]
fn digits4(number: u32) -> [u8; 4] {
    let hundreds = number.wrapping_mul(10_486) >> 20;
    let pairs = hundreds | number.wrapping_sub(hundreds.wrapping_mul(100)) << 16;
    let tens = (pairs.wrapping_mul(103) >> 10) & 0x000f_000f;
    let digits = tens | pairs.wrapping_sub(tens.wrapping_mul(10)) << 8;
    (digits | 0x3030_3030).to_le_bytes()
}

/// The lower 32 bits, four at a time from the lowest, as letters `A` to `P`.
#[inline]
fn nibbles8(number: u64) -> [u8; 8] {
    let low = number & 0xffff_ffff;
    let halves = (low | low << 16) & 0x0000_ffff_0000_ffff;
    let quarters = (halves | halves << 8) & 0x00ff_00ff_00ff_00ff;
    let nibbles = (quarters | quarters << 4) & 0x0f0f_0f0f_0f0f_0f0f;
    (nibbles + 0x4141_4141_4141_4141).to_le_bytes()
}

/// Adds the offsets of `n` rows of `size` bytes each, which are to be added, and makes room for them.
fn push_fixed_offsets(column: &mut Column, size: usize, n: usize) {
    column.data.reserve(n * size);
    let (mut end, offsets) = (column.data.len() as u32, column.offsets.len());
    column.offsets.resize(offsets + n * 4, 0);
    for offset in column.offsets[offsets..].as_chunks_mut::<4>().0 {
        end += size as u32;
        *offset = end.to_le_bytes();
    }
}

fn csv_template() -> [u8; CSV_BYTES] {
    let mut line = std::array::from_fn(|i| b'a' + (i % 26) as u8);
    for comma in [12, 23, 28] {
        line[comma] = b',';
    }
    line
}

#[cfg(test)]
mod tests {
    use super::super::{Polled, SourceReader, test_ctx};
    use super::*;

    fn reader(options: &GeneratorOptions, subtask: u32, parallelism: u32) -> GeneratorReader {
        options.validate().expect("good options");
        GeneratorReader::open(options, &test_ctx("numbers", parallelism), subtask).expect("opens")
    }

    fn rows(reader: &mut GeneratorReader) -> Vec<(Option<Vec<u8>>, Vec<u8>, i64)> {
        let mut rows = Vec::new();
        while let Polled::Batch { batch, .. } = reader.poll().expect("never fails") {
            batch.check().expect("well formed");
            let owned =
                |row: Row<'_>| (row.key.map(<[u8]>::to_vec), row.value.expect("a value").to_vec(), row.timestamp);
            rows.extend(batch.iter().map(owned));
        }
        rows
    }

    /// `Gens.Csv.fill` of the Flink benchmark, line by line.
    fn java_csv(id: u64, keys: i64) -> Vec<u8> {
        let dec = |b: &mut [u8], mut v: u64| {
            for byte in b.iter_mut().rev() {
                *byte = b'0' + (v % 10) as u8;
                v /= 10;
            }
        };
        let h = mix(id) >> 1;
        let n = keys.unsigned_abs();
        let key = if keys < 0 { id % n * 7_654_321 % n } else { h % n };
        let mut b: Vec<u8> = (0..100).map(|i| b'a' + (i % 26) as u8).collect();
        (b[12], b[23], b[28]) = (b',', b',', b',');
        dec(&mut b[0..12], id);
        dec(&mut b[13..23], key);
        dec(&mut b[24..28], (h >> 40) % 10_000);
        for i in 0..8 {
            b[29 + i] = b'A' + ((h >> (i * 4)) & 15) as u8;
        }
        b
    }

    #[test]
    fn csv_lines_are_those_of_the_flink_benchmark() {
        // splitmix64 with seed 0, from its authors' program.
        assert_eq!(mix(0), 0xe220_a839_7b1d_cdaf);
        let options = GeneratorOptions { count: Some(5_000), keys: 1_000, ..Default::default() };
        let made = rows(&mut reader(&options, 0, 1));
        assert_eq!(made.len(), 5_000);
        for (id, (key, value, timestamp)) in made.into_iter().enumerate() {
            assert_eq!(value, java_csv(id as u64, 1_000));
            assert_eq!((key.as_deref(), timestamp), (Some(&value[13..23]), NO_TIMESTAMP));
        }
        for number in 0..10_000 {
            assert_eq!(digits4(number as u32), *format!("{number:04}").as_bytes());
            let eight = number * 9_999 + 9_999;
            assert_eq!(digits8(eight), *format!("{eight:08}").as_bytes());
        }
        let maker = |options| Maker { options, keyed: true, template: csv_template(), line: Vec::new() };
        for (keys, key_order) in [(10_000_000_000, KeyOrder::Random), (999, KeyOrder::Permuted)] {
            let maker = maker(GeneratorOptions { keys, key_order, ..Default::default() });
            for id in [0, 1, 99_999_999, 100_000_000, 123_456_789_012, 999_999_999_999] {
                let mut batch = Batch::with_capacity(0, 0);
                maker.push_csv(id, 1, &mut batch);
                let java_keys = if key_order == KeyOrder::Permuted { -(keys as i64) } else { keys as i64 };
                assert_eq!(batch.value(0), Some(&java_csv(id, java_keys)[..]));
            }
        }
    }

    #[test]
    fn unkeyed_lines_are_the_same_without_keys() {
        let keyed = GeneratorOptions { count: Some(1_100), ..Default::default() };
        let unkeyed = GeneratorOptions { keyed: Some(false), ..keyed.clone() };
        let strip = |(_, value, timestamp)| (None, value, timestamp);
        let wanted: Vec<_> = rows(&mut reader(&keyed, 0, 1)).into_iter().map(strip).collect();
        assert_eq!(rows(&mut reader(&unkeyed, 0, 1)), wanted);
    }

    #[test]
    fn all_subtasks_together_make_every_record_once() {
        for kind in [GeneratorKind::Sequence, GeneratorKind::Words] {
            let options =
                GeneratorOptions { kind, count: Some(10_000), event_time: EventTime::Id, ..Default::default() };
            let mut all: Vec<_> = (0..3).flat_map(|subtask| rows(&mut reader(&options, subtask, 3))).collect();
            all.sort_unstable_by_key(|row| row.2);
            assert_eq!(all.len(), 10_000);
            for (id, (key, value, timestamp)) in all.into_iter().enumerate() {
                assert_eq!(timestamp, id as i64);
                match kind {
                    GeneratorKind::Sequence => assert_eq!(value, id.to_string().into_bytes()),
                    GeneratorKind::Csv => unreachable!("not asked for"),
                    GeneratorKind::Words => {
                        let mut line = Vec::new();
                        words_line(id as u64, options.vocabulary, &mut line);
                        assert_eq!((key, value), (None, line));
                    }
                }
            }
        }
    }

    #[test]
    fn a_replay_from_any_snapshot_gives_the_same_rest() {
        let options = GeneratorOptions { count: Some(9_000), rate: None, ..Default::default() };
        let whole = rows(&mut reader(&options, 0, 1));
        let mut first = reader(&options, 0, 1);
        let mut seen = 0;
        while let Polled::Batch { batch, .. } = first.poll().expect("never fails") {
            seen += batch.rows as usize;
            let mut second = reader(&options, 0, 1);
            second.restore(&first.snapshot()).expect("its own positions");
            assert_eq!(rows(&mut second), whole[seen..]);
        }
        assert_eq!(seen, 9_000);
    }

    #[test]
    fn words_are_as_many_as_the_vocabulary_and_lines_as_documented() {
        let mut text = Vec::new();
        for line in 0..20_000 {
            words_line(line, 700, &mut text);
            text.push(b'\n');
        }
        let text = String::from_utf8(text).expect("letters");
        let words: std::collections::BTreeSet<&str> = text.split_whitespace().collect();
        assert_eq!(words.len(), 700);
        assert!(words.iter().all(|word| word.len() >= 3));
        assert!(text.lines().all(|line| (4..=12).contains(&line.split(' ').count())));
    }

    #[test]
    fn a_slow_source_ends_when_its_records_are_made() {
        let options = GeneratorOptions { count: Some(3), rate: Some(1e9), ..Default::default() };
        let mut slow = reader(&options, 0, 1);
        let mut made = 0;
        loop {
            match slow.poll().expect("never fails") {
                Polled::Batch { batch, .. } => made += batch.rows,
                Polled::Idle(_) => {}
                Polled::Ended => break,
            }
        }
        assert_eq!(made, 3);
    }
}
