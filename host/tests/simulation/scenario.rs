//! What a seed stands for: the job's shape, its input, how time passes, and which faults may come.
//!
//! Invariant: a scenario is a function of its seed alone.

use std::num::NonZeroU32;
use std::time::Duration;

use lockgate_host::protocol::in_flight::Dealing;
use lockgate_host::protocol::{Alignment, CoordinatorOptions};

use crate::loss::Loss;
use crate::mutation::Mutation;
use crate::rng::Rng;
use crate::world::Shape;

/// The most source tasks there are.
const SOURCES_MAX: usize = 6;

/// How often a fault comes where it can: one time in so many.
#[derive(Clone, Debug)]
pub struct Faults {
    /// How many there may be in all, so that the job ends at some time.
    pub budget: u64,
    pub crash: u64,
    pub task_failure: u64,
    pub lost_ack: u64,
    pub upload_failure: u64,
    pub publish_failure: u64,
    pub commit_failure: u64,
    /// A commit in the cluster without an answer.
    pub decision_failure: u64,
    /// A transaction takes too long for the cluster.
    pub time_out: u64,
    pub stop: u64,
}

/// How likely each kind of step is to be the next, against the others.
#[derive(Clone, Debug)]
pub struct Weights {
    pub source: Vec<u64>,
    pub take: u64,
    pub announce: u64,
    pub upload: u64,
    pub deliver: u64,
    pub operation: u64,
    pub write: u64,
    pub tick: u64,
}

#[derive(Clone, Debug)]
pub struct Scenario {
    pub mutation: Option<Mutation>,
    /// Of the first attempt.
    pub shape: Shape,
    /// Every attempt may have another shape.
    pub rescales: bool,
    /// How the records of each side are dealt to the counters.
    pub dealing: [Dealing; 2],
    pub alignment: Alignment,
    pub keys: u64,
    /// How many records each round adds to the input, and to how many splits.
    pub rounds: Vec<(u64, u32)>,
    pub options: CoordinatorOptions,
    pub keep: NonZeroU32,
    /// All sources but one close their channels as soon as they have ended.
    pub closes_early: bool,
    /// Sources are idle at times.
    pub idles: bool,
    /// A counter writes all its state anew with every n-th snapshot, and what has changed with the others.
    pub base_every: u64,
    pub channel_items_max: usize,
    /// There is a two-phase sink.
    pub has_files: bool,
    /// From which round on there is a deciding sink.
    pub log_from: Option<usize>,
    /// Other jobs use the topic of the markers, too.
    pub foreign: bool,
    /// What is lost at some time.
    pub loss: Option<Loss>,
    /// How often a checkpoint or an upgrade is asked for in a round, and how long an upgrade is tried.
    pub requests: u64,
    pub probation: Duration,
    pub faults: Faults,
    pub weights: Weights,
}

impl Scenario {
    pub const KEY_GROUPS: u32 = 8;

    pub fn new(seed: u64, mutation: Option<Mutation>) -> Scenario {
        let mut rng = Rng::new(seed);
        let rng = &mut rng;
        let sides = rng.between(1, 2) as usize;
        let has_sinks = rng.one_in(2);
        let shape = any_shape(rng, sides, has_sinks);
        let (alignment, concurrent_max) = alignment(rng);
        let mut splits = rng.between(1, 4) as u32;
        let mut rounds = Vec::new();
        let overtakes = alignment.overtakes();
        for _ in 0..*rng.pick(&[1, 1, 2, 3]) {
            rounds.push((*rng.pick(if overtakes { &[3, 10, 25, 40] } else { &[0, 3, 10, 25, 40] }), splits));
            splits += rng.below(2) as u32;
        }
        let (has_files, log_from) = sinks(rng, alignment);
        let loss = (log_from == Some(0) && rng.one_in(4)).then(|| Loss::new(rng));
        let millis = |rng: &mut Rng, from: &[u64]| Duration::from_millis(*rng.pick(from));
        let mut upgrades = Rng::new(!seed.rotate_left(32));
        Scenario {
            mutation,
            shape,
            // Attempts with something in flight to take up are rare enough as it is.
            rescales: overtakes || rng.one_in(2),
            dealing: [Dealing::ByKey, *rng.pick(&[Dealing::ByKey, Dealing::ToAll])],
            alignment,
            keys: *rng.pick(&[1, 2, 5, 9]),
            rounds,
            options: CoordinatorOptions {
                interval: millis(rng, if overtakes { &[1, 10, 20, 40] } else { &[1, 10, 40, 120] }),
                min_pause: millis(rng, &[0, 0, 15]),
                timeout: millis(rng, &[150, 1_000, 1_000, 5_000]),
                concurrent_max,
            },
            keep: NonZeroU32::new(rng.between(1, 3) as u32).expect("at least 1"),
            closes_early: rng.one_in(3),
            idles: rng.one_in(3),
            base_every: rng.between(2, 5),
            // A channel has room for all barriers under way before it is full, or they could keep records out for ever.
            channel_items_max: rng.between(concurrent_max.get().into(), if overtakes { 10 } else { 6 }) as usize,
            has_files,
            log_from,
            foreign: rng.one_in(3),
            loss,
            requests: *upgrades.pick(&[0, 0, 1, 3]),
            probation: Duration::from_millis(*upgrades.pick(&[0, 3, 40])),
            faults: Scenario::faults(rng),
            weights: Weights {
                source: (0..SOURCES_MAX).map(|_| *rng.pick(&[1, 4, 16])).collect(),
                // Barriers overtake something only where queues are long.
                take: *rng.pick(if overtakes { &[1, 2, 4] } else { &[2, 8, 24] }),
                announce: *rng.pick(&[4, 16, 64]),
                upload: *rng.pick(&[1, 4, 16]),
                deliver: *rng.pick(&[1, 4, 16]),
                operation: *rng.pick(&[1, 4, 16]),
                write: *rng.pick(&[1, 4, 16]),
                tick: *rng.pick(&[1, 4, 16]),
            },
        }
    }

    /// How many streams there are.
    pub fn sides(&self) -> usize {
        self.shape.sources.iter().filter(|sources| **sources > 0).count()
    }

    /// Which stream a split is of.
    pub fn side_of(&self, split: u32) -> usize {
        split as usize % self.sides()
    }

    /// The shape of the next attempt. Sinks stay chained, or stay apart.
    pub fn next_shape(&self, rng: &mut Rng, now: Shape) -> Shape {
        if self.rescales && rng.one_in(2) { any_shape(rng, self.sides(), self.shape.sinks > 0) } else { now }
    }

    /// Each kind of fault is rare in some seeds and frequent in others.
    fn faults(rng: &mut Rng) -> Faults {
        let often = |rng: &mut Rng, most: u64| *rng.pick(&[most, most * 4, most * 16, 1_000_000]);
        Faults {
            budget: *rng.pick(&[0, 2, 5, 12]),
            crash: often(rng, 15),
            task_failure: often(rng, 60),
            lost_ack: often(rng, 8),
            upload_failure: often(rng, 8),
            publish_failure: often(rng, 2),
            commit_failure: often(rng, 2),
            decision_failure: often(rng, 2),
            time_out: often(rng, 40),
            stop: often(rng, 20),
        }
    }
}

fn any_shape(rng: &mut Rng, sides: usize, has_sinks: bool) -> Shape {
    let mut sources = [0; 2];
    sources[..sides].iter_mut().for_each(|sources| *sources = rng.between(1, 3) as u32);
    let counters = rng.between(1, 3) as u32;
    Shape { sources, counters, sinks: if has_sinks { rng.between(1, 2) as u32 } else { 0 } }
}

/// Whether there is a two-phase sink, and from which round on a deciding one.
fn sinks(rng: &mut Rng, alignment: Alignment) -> (bool, Option<usize>) {
    let log = rng.one_in(2) && alignment != Alignment::AtLeastOnce;
    if !log {
        return (true, None);
    }
    *rng.pick(&[(false, Some(0)), (true, Some(0)), (true, Some(1))])
}

/// How barriers are aligned, and how many checkpoints may be in flight.
fn alignment(rng: &mut Rng) -> (Alignment, NonZeroU32) {
    let several = NonZeroU32::new(rng.between(1, 3) as u32).expect("at least 1");
    let after = Duration::from_millis(*rng.pick(&[3, 20, 80]));
    match rng.below(8) {
        0 | 1 => (Alignment::Aligned, several),
        2..=4 => (Alignment::Unaligned { after: Duration::ZERO }, NonZeroU32::MIN),
        5 | 6 => (Alignment::Unaligned { after }, NonZeroU32::MIN),
        _ => (Alignment::AtLeastOnce, several),
    }
}
