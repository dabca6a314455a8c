//! What a seed stands for: the job's shape, its input, how time passes, and which faults may come.
//!
//! Invariant: a scenario is a function of its seed alone.

use std::num::NonZeroU32;
use std::time::Duration;

use lockgate_host::protocol::CoordinatorOptions;

use crate::mutation::Mutation;
use crate::rng::Rng;

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
    pub stop: u64,
}

/// How likely each kind of step is to be the next, against the others.
#[derive(Clone, Debug)]
pub struct Weights {
    pub source: Vec<u64>,
    pub take: u64,
    pub upload: u64,
    pub deliver: u64,
    pub operation: u64,
    pub tick: u64,
}

#[derive(Clone, Debug)]
pub struct Scenario {
    pub mutation: Option<Mutation>,
    pub sources: u32,
    pub counters: u32,
    /// 0: each counter has its sink chained to it.
    pub sinks: u32,
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
    pub faults: Faults,
    pub weights: Weights,
}

impl Scenario {
    pub const KEY_GROUPS: u32 = 8;

    pub fn new(seed: u64, mutation: Option<Mutation>) -> Scenario {
        let mut rng = Rng::new(seed);
        let rng = &mut rng;
        let sources = rng.between(1, 3) as u32;
        let mut splits = rng.between(1, 4) as u32;
        let mut rounds = Vec::new();
        for _ in 0..*rng.pick(&[1, 1, 2, 3]) {
            rounds.push((*rng.pick(&[0, 3, 10, 25, 40]), splits));
            splits += rng.below(2) as u32;
        }
        let millis = |rng: &mut Rng, from: &[u64]| Duration::from_millis(*rng.pick(from));
        Scenario {
            mutation,
            sources,
            counters: rng.between(1, 3) as u32,
            sinks: rng.below(3) as u32,
            keys: *rng.pick(&[1, 2, 5, 9]),
            rounds,
            options: CoordinatorOptions {
                interval: millis(rng, &[1, 10, 40, 120]),
                min_pause: millis(rng, &[0, 0, 15]),
                timeout: millis(rng, &[150, 1_000, 1_000, 5_000]),
            },
            keep: NonZeroU32::new(rng.between(1, 3) as u32).expect("at least 1"),
            closes_early: rng.one_in(3),
            idles: rng.one_in(3),
            base_every: rng.between(2, 5),
            channel_items_max: rng.between(1, 6) as usize,
            faults: Scenario::faults(rng),
            weights: Weights {
                source: (0..sources).map(|_| *rng.pick(&[1, 4, 16])).collect(),
                take: *rng.pick(&[2, 8, 24]),
                upload: *rng.pick(&[1, 4, 16]),
                deliver: *rng.pick(&[1, 4, 16]),
                operation: *rng.pick(&[1, 4, 16]),
                tick: *rng.pick(&[1, 4, 16]),
            },
        }
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
            stop: often(rng, 20),
        }
    }
}
