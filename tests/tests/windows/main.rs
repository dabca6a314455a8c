//! Every building block of the SDK as a Wasm operator in the real binary gives what a computation over all records at
//! once gives.

mod crashes;
mod input;
mod job;

use std::collections::{BTreeMap, HashMap};

use input::{Line, lines};
use job::{Block, run, run_files};

/// `key,start,end,count,sum,max`
fn window_line(key: &str, start: i64, end: i64, values: &[i64]) -> String {
    let (count, sum) = (values.len(), values.iter().sum::<i64>());
    let max = values.iter().max().expect("a value");
    format!("{key},{start},{end},{count},{sum},{max}")
}

/// The windows of a size that begin every slide.
fn windows(lines: &[Line], size: i64, slide: i64) -> Vec<String> {
    let mut windows = HashMap::<(&str, i64), Vec<i64>>::new();
    for line in lines {
        let last = line.time.div_euclid(slide) * slide;
        let starts = (0..size / slide).map(|back| last - back * slide);
        starts.for_each(|start| windows.entry((&line.key, start)).or_default().push(line.value));
    }
    windows.iter().map(|(&(key, start), values)| window_line(key, start, start + size, values)).collect()
}

fn by_key(lines: &[Line]) -> BTreeMap<&str, Vec<&Line>> {
    let mut by_key = BTreeMap::<&str, Vec<&Line>>::new();
    lines.iter().for_each(|line| by_key.entry(&line.key).or_default().push(line));
    by_key
}

#[test]
fn tumbling_windows() {
    let lines = lines(1, 8_000);
    run(Block::One("tumbling"), &[&lines]).assert(windows(&lines, 10_000, 10_000));
}

#[test]
fn files_of_the_same_time_are_not_late_whatever_the_order_in_which_they_are_read() {
    // Longer than a batch, so that event time could go on within a file.
    let lines = lines(8, 24_000);
    let of_files = |number: usize| lines.iter().skip(number).step_by(3).cloned().collect::<Vec<_>>();
    let files = [of_files(0), of_files(1), of_files(2)];
    let files = files.each_ref().map(Vec::as_slice);
    let output = run_files(&files, "");
    output.assert(windows(&lines, 10_000, 10_000));
    assert_eq!(output.late(), [""; 0]);
    let as_if_in_order = run_files(&files, "ordered = true\n");
    assert!(!as_if_in_order.late().is_empty(), "nobody has waited for them");
}

#[test]
fn files_that_follow_each_other_in_time_are_not_late_if_that_is_said() {
    let lines = lines(9, 12_000);
    let (first, second) = lines.split_at(6_000);
    let output = run_files(&[first, second], "ordered = true\n");
    output.assert(windows(&lines, 10_000, 10_000));
    assert_eq!(output.late(), [""; 0]);
}

#[test]
fn sliding_windows() {
    let lines = lines(2, 4_000);
    run(Block::One("sliding"), &[&lines]).assert(windows(&lines, 60_000, 1_000));
}

#[test]
fn session_windows() {
    // So few that the pauses of a key are often longer than the gap.
    let lines = lines(3, 24_000).into_iter().step_by(8).collect::<Vec<_>>();
    let mut wanted = Vec::new();
    for (key, mut lines) in by_key(&lines) {
        lines.sort_by_key(|line| line.time);
        for session in lines.chunk_by(|one, next| next.time - one.time < 2_000) {
            let values = session.iter().map(|line| line.value).collect::<Vec<_>>();
            let end = session.last().expect("a record").time + 2_000;
            wanted.push(window_line(key, session[0].time, end, &values));
        }
    }
    assert!(wanted.len() > 50, "{} sessions", wanted.len());
    run(Block::One("session"), &[&lines]).assert(wanted);
}

#[test]
fn an_interval_join_with_the_left_records_that_have_no_partner() {
    let (left, right) = (lines(4, 2_000), lines(5, 1_500));
    let rights = by_key(&right);
    let mut wanted = Vec::new();
    for Line { key, time, value } in &left {
        let near = rights.get(key.as_str()).into_iter().flatten();
        let near = near.filter(|right| right.time >= *time && right.time <= time + 1_000).collect::<Vec<_>>();
        if near.is_empty() {
            wanted.push(format!("{key},{value},"));
        }
        wanted.extend(near.iter().map(|right| format!("{key},{value},{}", right.value)));
    }
    assert!(wanted.iter().any(|line| line.ends_with(',')), "some have no partner");
    run(Block::Two("interval-join"), &[&left, &right]).assert(wanted);
}

#[test]
fn a_window_join() {
    let (left, right) = (lines(6, 1_000), lines(7, 1_000));
    run(Block::Two("window-join"), &[&left, &right]).assert(window_join(&left, &right));
}

/// What the join of two streams in windows of ten seconds gives.
fn window_join(left: &[Line], right: &[Line]) -> Vec<String> {
    let rights = by_key(right);
    let mut wanted = Vec::new();
    for Line { key, time, value } in left {
        let near = rights.get(key.as_str()).into_iter().flatten();
        let near = near.filter(|right| right.time.div_euclid(10_000) == time.div_euclid(10_000));
        wanted.extend(near.map(|right| format!("{key},{value},{}", right.value)));
    }
    wanted
}

#[test]
fn deduplication() {
    let mut lines = Vec::new();
    let mut wanted = Vec::new();
    for period in 0..300i64 {
        for copy in 0..1 + period % 4 {
            let key = format!("k{}", period % 7);
            let (time, value) = (period * 10_000 + copy, 7);
            if copy == 0 {
                wanted.push(format!("{key},{time},{value}"));
            }
            lines.push(Line { key, time, value });
        }
    }
    run(Block::One("deduplicate"), &[&lines]).assert(wanted);
}

#[test]
fn a_ranking() {
    let lines = lines(8, 2_000);
    let mut best = HashMap::<&str, Vec<i64>>::new();
    let mut wanted = Vec::new();
    for Line { key, value, .. } in &lines {
        let best = best.entry(key).or_default();
        let before = best.clone();
        best.push(*value);
        best.sort_unstable_by(|a, b| b.cmp(a));
        best.truncate(3);
        // A value that equals the last one takes no place.
        if *best != before {
            let best = best.iter().map(i64::to_string).collect::<Vec<_>>().join(",");
            wanted.push(format!("{key},{best}"));
        }
    }
    run(Block::One("ranking"), &[&lines]).assert(wanted);
}

/// Records that come after the control stream has said all it says have all names, in every subtask, also after a
/// restart.
#[test]
fn enrichment_from_a_broadcast_table() {
    let names = (0..10).map(|key| Line { key: format!("k{key}"), time: 0, value: 1_000 + key }).collect::<Vec<_>>();
    let records = lines(9, 3_000);
    let wanted = records.iter().map(|Line { key, value, .. }| {
        let name = 1_000 + key[1..].parse::<i64>().expect("a number");
        format!("{key},{value},{name}")
    });
    job::run_enrichment(&records, &names).assert(wanted.collect());
}

#[test]
fn late_records_go_to_the_side_output_and_none_is_lost() {
    let mut lines = lines(10, 60_000);
    // Each tenth is more than the bound behind; there are many batches, so that the watermark goes on between them.
    lines.iter_mut().step_by(10).for_each(|line| line.time -= 15_000);
    let output = run(Block::One("tumbling"), &[&lines]);
    let late = output.late();
    assert!(!late.is_empty(), "none is late");
    let counted = output.lines().into_iter().map(|line| line.split(',').nth(3).expect("a count").parse::<usize>());
    let counted = counted.sum::<Result<usize, _>>().expect("a number");
    assert_eq!(counted + late.len(), lines.len());
}
