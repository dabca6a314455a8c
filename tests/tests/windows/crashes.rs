//! A join of two streams in windows is exact wherever the process is killed, with barriers that are aligned and that overtake.

use lockgate_tests::crash_points_without_kafka;

use crate::input::lines;
use crate::job::{Block, prepare};
use crate::window_join;

/// Short, so that a run takes several checkpoints; a later key of the table would be refused as a double.
const ALIGNED: &str = "alignment = 'aligned'";
const UNALIGNED: &str = "alignment = 'unaligned'";

#[test]
fn a_window_join_is_exact_after_crashes_at_each_point_twice_in_a_row() {
    let (left, right) = (lines(8, 4_000), lines(9, 4_000));
    let wanted = window_join(&left, &right);
    // Those of progress belong to at-most-once.
    let points = crash_points_without_kafka()
        .into_iter()
        .filter(|point| !point.starts_with("store.progress."))
        .collect::<Vec<_>>();
    let mut reached = 0;
    for (number, point) in points.iter().enumerate() {
        let alignment = if number % 2 == 0 { ALIGNED } else { UNALIGNED };
        let job = prepare(Block::Two("window-join"), &[&left, &right], alignment);
        for turn in [point.clone(), point.clone(), format!("{point}:2")] {
            let finished = job.folder.run_to_crash_point(&turn);
            reached += usize::from(finished.was_killed());
            assert!(finished.was_killed() || finished.status.success(), "{turn}: {}", finished.stderr);
        }
        job.folder.run().assert_success();
        job.assert(wanted.clone());
    }
    assert!(reached > points.len(), "{reached} crashes at {} points", points.len());
}
