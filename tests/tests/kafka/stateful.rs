//! Keyed state between two topics is exact: it holds what an independent count of the input says, whatever was killed.

use std::collections::BTreeMap;
use std::ops::Range;

use lockgate_tests::kafka::{NewRecord, Record};
use lockgate_tests::{Feed, KafkaJob, Words, crash_points};

use crate::brokers::shared;

/// The word of a number; some are far more frequent than others.
fn word_of(number: u64) -> String {
    let mut word = Vec::new();
    Words::new(number).push_word(&mut word);
    String::from_utf8(word).expect("letters")
}

/// Words as keys.
fn words(numbers: Range<u64>) -> Vec<NewRecord> {
    numbers.map(|number| NewRecord::keyed(word_of(number), "x")).collect()
}

/// The counts that the output holds by key, in the order of the output.
fn counts(records: &[Record]) -> BTreeMap<String, Vec<u64>> {
    let mut counts = BTreeMap::<String, Vec<u64>>::new();
    for record in records {
        let (word, count) = record.text().split_once('\t').unwrap_or_else(|| panic!("no count in {record:?}"));
        assert_eq!(word, record.key_text());
        counts.entry(word.to_owned()).or_default().push(count.parse().expect("a number"));
    }
    counts
}

#[test]
fn a_count_by_key_is_what_an_independent_count_says_wherever_it_is_killed() {
    let Some((broker, client)) = shared("keyed state between topics") else { return };
    let mut job = KafkaJob::through("count", broker.address(), "count").with("job", "parallelism", "2").with(
        "operator.op",
        "limits.state_memory",
        "'1MiB'",
    );
    job.create_topics(&client, 4);
    let all = crash_points();
    let of = |room: &str| all.iter().filter(|point| point.starts_with(room)).cloned().collect::<Vec<_>>();
    let points = [of("state."), of("store.upload."), of("kafka.commit."), of("runtime.published")].concat();
    let (mut feed, mut crashes) = (Feed::of(&client, &job, words), 0);
    for (turn, point) in points.iter().enumerate() {
        feed.add(4_000);
        job.change("job", "parallelism", &format!("{}", 1 + turn % 3));
        crashes += usize::from(feed.crash(&job, point));
    }
    assert!(crashes >= points.len() / 2, "{crashes} crashes at {points:?}");
    job.catch_up(&client);
    let mut totals = BTreeMap::<String, u64>::new();
    (0..feed.count()).for_each(|number| *totals.entry(word_of(number)).or_default() += 1);
    let counts = counts(&client.read(&job.output(), true));
    assert_eq!(counts.len(), totals.len());
    for (word, total) in totals {
        // Each count once, and in order: the records of a key are in one partition.
        assert_eq!(counts[&word], (1..=total).collect::<Vec<_>>(), "{word}");
    }
}
