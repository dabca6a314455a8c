//! The aligner by example. Every order of events is in `interleavings.rs`.

use super::*;

mod interleavings;

const NOW: Duration = Duration::ZERO;
const AT_ONCE: Alignment = Alignment::Unaligned { after: Duration::ZERO };
const PATIENT: Alignment = Alignment::Unaligned { after: Duration::from_secs(5) };

fn barrier(epoch: u64) -> Barrier {
    Barrier { epoch: Epoch(epoch), purpose: Purpose::Continue }
}

fn waiting(epoch: u64) -> Verdict {
    Verdict::Waiting(Epoch(epoch))
}

fn aligned(epoch: u64) -> Verdict {
    Verdict::Aligned(barrier(epoch))
}

fn overtaken(epoch: u64) -> Verdict {
    Verdict::Overtaken(barrier(epoch))
}

fn captured(epoch: u64) -> Verdict {
    Verdict::Captured(Epoch(epoch))
}

fn abandoned(epoch: u64) -> Verdict {
    Verdict::Abandoned(Epoch(epoch))
}

fn stale(epoch: u64) -> Verdict {
    Verdict::Stale(Epoch(epoch))
}

fn owing(aligner: &Aligner) -> Option<(u64, Vec<usize>)> {
    aligner.owing().map(|(epoch, inputs)| (epoch.0, inputs.into_iter().map(|input| input.0).collect()))
}

#[test]
fn an_input_is_held_from_its_barrier_until_all_have_delivered_it() {
    let mut aligner = Aligner::new(Alignment::Aligned, 2, 3);
    assert_eq!(aligner.barrier(Input(1), barrier(4), NOW), [waiting(4)]);
    assert!(aligner.is_held(Input(1)) && !aligner.is_held(Input(0)));
    assert_eq!(owing(&aligner), Some((4, vec![0])));
    assert_eq!(aligner.barrier(Input(0), barrier(4), NOW), [aligned(4)]);
    assert!(!aligner.is_held(Input(1)) && !aligner.is_held(Input(0)));
    assert_eq!(owing(&aligner), None);
}

#[test]
fn the_end_of_an_input_completes_what_only_it_owed() {
    let mut aligner = Aligner::new(Alignment::Aligned, 3, 1);
    assert_eq!(aligner.end(Input(0)), []);
    assert_eq!(aligner.barrier(Input(1), barrier(1), NOW), [waiting(1)]);
    assert_eq!(aligner.end(Input(2)), [aligned(1)]);
    assert_eq!(aligner.barrier(Input(1), barrier(2), NOW), [aligned(2)]);
    assert_eq!(aligner.end(Input(1)), [Verdict::Finished]);
    assert!(aligner.is_finished());
}

#[test]
fn a_newer_epoch_ends_the_wait_for_an_older_one_whose_late_barriers_are_stale() {
    let mut aligner = Aligner::new(Alignment::Aligned, 3, 1);
    assert_eq!(aligner.barrier(Input(0), barrier(1), NOW), [waiting(1)]);
    assert_eq!(aligner.barrier(Input(1), barrier(3), NOW), [abandoned(1), waiting(3)]);
    assert!(!aligner.is_held(Input(0)) && aligner.is_held(Input(1)));
    assert_eq!(aligner.barrier(Input(2), barrier(1), NOW), [stale(1)]);
    assert_eq!(aligner.barrier(Input(2), barrier(2), NOW), [stale(2)]);
    assert_eq!(aligner.barrier(Input(2), barrier(3), NOW), [waiting(3)]);
    assert_eq!(aligner.barrier(Input(0), barrier(3), NOW), [aligned(3)]);
    assert_eq!(aligner.barrier(Input(0), barrier(3), NOW), [stale(3)]);
}

#[test]
#[should_panic(expected = "nothing is taken from input 0")]
fn taking_from_a_held_input_is_a_bug() {
    let mut aligner = Aligner::new(Alignment::Aligned, 2, 1);
    let _waiting = aligner.barrier(Input(0), barrier(1), NOW);
    let _never = aligner.end(Input(0));
}

#[test]
fn an_unaligned_barrier_overtakes_at_once_and_its_snapshot_is_complete_when_it_has_come_everywhere() {
    let mut aligner = Aligner::new(AT_ONCE, 3, 1);
    assert_eq!(aligner.announced(Input(1), barrier(1), NOW), [overtaken(1), waiting(1)]);
    assert_eq!(owing(&aligner), Some((1, vec![0, 2])));
    assert_eq!(aligner.barrier(Input(1), barrier(1), NOW), [stale(1)], "it is taken in its turn");
    assert!((0..3).all(|input| !aligner.is_held(Input(input))));
    assert_eq!(aligner.announced(Input(0), barrier(1), NOW), [waiting(1)]);
    assert_eq!(aligner.end(Input(2)), [captured(1)], "an input that has ended owes nothing");
    assert_eq!(aligner.announced(Input(0), barrier(2), NOW), [overtaken(2), waiting(2)]);
    assert_eq!(aligner.announced(Input(1), barrier(2), NOW), [captured(2)]);
}

#[test]
fn on_one_input_an_overtaken_snapshot_is_complete_at_once() {
    let mut aligner = Aligner::new(AT_ONCE, 1, 1);
    assert_eq!(aligner.announced(Input(0), barrier(1), NOW), [overtaken(1), captured(1)]);
}

#[test]
fn with_time_to_wait_inputs_are_aligned_until_it_is_over() {
    let secs = Duration::from_secs;
    let mut aligner = Aligner::new(PATIENT, 2, 1);
    assert_eq!(aligner.announced(Input(0), barrier(1), secs(10)), [waiting(1)]);
    assert_eq!(aligner.deadline(), Some(secs(15)));
    assert_eq!(aligner.barrier(Input(0), barrier(1), secs(11)), [waiting(1)]);
    assert!(aligner.is_held(Input(0)));
    assert_eq!(aligner.tick(secs(14)), []);
    let mut in_time = aligner.clone();
    assert_eq!(aligner.tick(secs(15)), [overtaken(1), waiting(1)]);
    assert!(!aligner.is_held(Input(0)) && aligner.deadline().is_none());
    assert_eq!(aligner.announced(Input(1), barrier(1), secs(16)), [captured(1)]);

    assert_eq!(in_time.announced(Input(1), barrier(1), secs(14)), [waiting(1)]);
    assert_eq!(in_time.barrier(Input(1), barrier(1), secs(14)), [aligned(1)]);
    assert_eq!(in_time.deadline(), None);
}

#[test]
fn the_last_barrier_is_aligned_in_every_mode() {
    let last = Barrier { epoch: Epoch(1), purpose: Purpose::Last };
    for alignment in [Alignment::Aligned, AT_ONCE, PATIENT, Alignment::AtLeastOnce] {
        let mut aligner = Aligner::new(alignment, 2, 1);
        assert_eq!(aligner.announced(Input(0), last, NOW), []);
        assert_eq!(aligner.barrier(Input(0), last, NOW), [waiting(1)]);
        assert_eq!(aligner.deadline(), None);
        assert_eq!(aligner.barrier(Input(1), last, NOW), [Verdict::Aligned(last)], "{alignment:?}");
    }
}

#[test]
fn at_least_once_holds_nothing_and_counts_several_epochs_at_a_time() {
    let mut aligner = Aligner::new(Alignment::AtLeastOnce, 2, 2);
    assert_eq!(aligner.barrier(Input(0), barrier(1), NOW), [waiting(1)]);
    assert_eq!(aligner.barrier(Input(0), barrier(2), NOW), [waiting(2)]);
    assert!(!aligner.is_held(Input(0)));
    assert_eq!(owing(&aligner), Some((1, vec![1])));
    assert_eq!(aligner.barrier(Input(1), barrier(1), NOW), [aligned(1)]);
    assert_eq!(aligner.barrier(Input(1), barrier(2), NOW), [aligned(2)]);
    let _waits = aligner.barrier(Input(0), barrier(3), NOW);
    let _waits = aligner.barrier(Input(0), barrier(4), NOW);
    let _waits = aligner.end(Input(0));
    assert_eq!(aligner.end(Input(1)), [aligned(3), aligned(4), Verdict::Finished]);
}

#[test]
fn at_least_once_the_last_barrier_alone_holds_its_input_until_it_has_come_everywhere() {
    let last = Barrier { epoch: Epoch(2), purpose: Purpose::Last };
    let mut aligner = Aligner::new(Alignment::AtLeastOnce, 2, 2);
    assert_eq!(aligner.barrier(Input(0), barrier(1), NOW), [waiting(1)]);
    assert_eq!(aligner.barrier(Input(0), last, NOW), [waiting(2)]);
    assert!(aligner.is_held(Input(0)), "the end behind it isn't the end of the stream");
    assert_eq!(aligner.barrier(Input(1), barrier(1), NOW), [aligned(1)]);
    assert!(aligner.is_held(Input(0)) && !aligner.is_held(Input(1)));
    assert_eq!(aligner.barrier(Input(1), last, NOW), [Verdict::Aligned(last)]);
    assert!(!aligner.is_held(Input(0)) && !aligner.is_held(Input(1)));
}

#[test]
fn at_least_once_gives_up_the_oldest_epoch_when_there_are_too_many_or_it_was_left_out() {
    let mut aligner = Aligner::new(Alignment::AtLeastOnce, 2, 2);
    for epoch in [1, 2] {
        assert_eq!(aligner.barrier(Input(0), barrier(epoch), NOW), [waiting(epoch)]);
    }
    assert_eq!(aligner.barrier(Input(0), barrier(3), NOW), [abandoned(1), waiting(3)]);
    assert_eq!(aligner.barrier(Input(1), barrier(1), NOW), [stale(1)]);
    assert_eq!(aligner.barrier(Input(1), barrier(3), NOW), [abandoned(2), aligned(3)]);
}
