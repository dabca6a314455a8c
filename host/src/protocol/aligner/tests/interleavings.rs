//! Every order in which a task's queues can fill and be emptied, in every mode, against the definition of each mode.
//!
//! Each state of aligner and queues is looked at once, however it is reached: what follows from it is the same.

use std::collections::BTreeSet;

use super::*;

/// What an input brings, in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Record,
    Barrier(u64),
    End,
}

/// A capture of an epoch: by input, the places of the records that were recorded, and how many steps were taken before it.
#[derive(Clone, Debug)]
struct Capture {
    epoch: u64,
    recorded: Vec<Vec<usize>>,
    taken: Vec<usize>,
}

/// A task and its queues. Steps of an input before `taken` are out of its queue, those from `pushed` on aren't in it yet.
#[derive(Clone, Debug)]
struct Model {
    aligner: Aligner,
    pushed: Vec<usize>,
    taken: Vec<usize>,
    now: Duration,
    capture: Option<Capture>,
    snapshots: BTreeSet<u64>,
    /// Aligned or overtaken.
    begun: BTreeSet<u64>,
    is_finished: bool,
}

struct Explorer {
    alignment: Alignment,
    concurrent_max: usize,
    scripts: Vec<Vec<Step>>,
    seen: BTreeSet<String>,
    ends: usize,
}

impl Explorer {
    fn run(alignment: Alignment, concurrent_max: usize, scripts: &[&[Step]]) -> Explorer {
        let inputs = scripts.len();
        let scripts = scripts.iter().map(|script| script.to_vec()).collect();
        let mut explorer = Explorer { alignment, concurrent_max, scripts, seen: BTreeSet::new(), ends: 0 };
        explorer.explore(&Model {
            aligner: Aligner::new(alignment, inputs, concurrent_max),
            pushed: vec![0; inputs],
            taken: vec![0; inputs],
            now: NOW,
            capture: None,
            snapshots: BTreeSet::new(),
            begun: BTreeSet::new(),
            is_finished: false,
        });
        explorer
    }

    fn explore(&mut self, model: &Model) {
        if !self.seen.insert(format!("{model:?}")) {
            return;
        }
        let mut followers = Vec::new();
        for input in 0..self.scripts.len() {
            if model.pushed[input] < self.scripts[input].len() {
                let mut next = model.clone();
                self.push(&mut next, input);
                followers.push(next);
            }
            if model.taken[input] < model.pushed[input] && !model.aligner.is_held(Input(input)) {
                let mut next = model.clone();
                self.take(&mut next, input);
                followers.push(next);
            }
        }
        if let Some(deadline) = model.aligner.deadline() {
            let mut next = model.clone();
            next.now = deadline;
            let verdicts = next.aligner.tick(deadline);
            self.act(&mut next, verdicts);
            followers.push(next);
        }
        if followers.is_empty() {
            self.ends += 1;
            self.check_end(model);
        }
        for next in &followers {
            self.explore(next);
        }
    }

    fn push(&self, model: &mut Model, input: usize) {
        let place = model.pushed[input];
        model.pushed[input] += 1;
        match self.scripts[input][place] {
            Step::Record => {
                if let Some(capture) = &mut model.capture
                    && self.before(input, capture.epoch).contains(&place)
                {
                    capture.recorded[input].push(place);
                }
            }
            Step::Barrier(epoch) if self.alignment.overtakes() => {
                let verdicts = model.aligner.announced(Input(input), barrier(epoch), model.now);
                self.act(model, verdicts);
            }
            Step::Barrier(_) | Step::End => {}
        }
    }

    fn take(&self, model: &mut Model, input: usize) {
        let step = self.scripts[input][model.taken[input]];
        model.taken[input] += 1;
        let verdicts = match step {
            Step::Record => Vec::new(),
            Step::Barrier(epoch) => model.aligner.barrier(Input(input), barrier(epoch), model.now),
            Step::End => model.aligner.end(Input(input)),
        };
        self.act(model, verdicts);
    }

    fn act(&self, model: &mut Model, verdicts: Vec<Verdict>) {
        for verdict in verdicts {
            match verdict {
                Verdict::Waiting(_) | Verdict::Stale(_) => {}
                Verdict::Aligned(barrier) => {
                    let epoch = barrier.epoch.0;
                    assert!(model.begun.insert(epoch), "{epoch} twice: {model:?}");
                    self.check_aligned(model, epoch);
                    model.snapshots.insert(epoch);
                }
                Verdict::Overtaken(barrier) => {
                    let epoch = barrier.epoch.0;
                    assert!(model.begun.insert(epoch), "{epoch} twice: {model:?}");
                    assert!((0..self.scripts.len()).all(|input| !model.aligner.is_held(Input(input))), "{model:?}");
                    model.capture = Some(self.begin_capture(model, epoch));
                }
                Verdict::Captured(epoch) => {
                    let capture = model.capture.take().expect("a capture was begun");
                    assert_eq!(capture.epoch, epoch.0);
                    self.check_captured(&capture);
                    model.snapshots.insert(epoch.0);
                }
                Verdict::Abandoned(epoch) => drop(model.capture.take_if(|capture| capture.epoch == epoch.0)),
                Verdict::Finished => {
                    assert!(!std::mem::replace(&mut model.is_finished, true), "it ends once");
                    assert!(self.all_taken(model));
                }
            }
        }
    }

    fn begin_capture(&self, model: &Model, epoch: u64) -> Capture {
        let recorded = (0..self.scripts.len()).map(|input| {
            let before = self.before(input, epoch);
            (model.taken[input]..model.pushed[input]).filter(|place| before.contains(place)).collect()
        });
        Capture { epoch, recorded: recorded.collect(), taken: model.taken.clone() }
    }

    fn all_taken(&self, model: &Model) -> bool {
        (0..self.scripts.len()).all(|input| model.taken[input] == self.scripts[input].len())
    }

    fn place_of(&self, input: usize, epoch: u64) -> Option<usize> {
        self.scripts[input].iter().position(|step| *step == Step::Barrier(epoch))
    }

    /// The records before the barrier, or all where it doesn't come.
    fn before(&self, input: usize, epoch: u64) -> BTreeSet<usize> {
        self.records(input, self.place_of(input, epoch).unwrap_or(self.scripts[input].len()))
    }

    /// The records among the first steps of an input.
    fn records(&self, input: usize, steps: usize) -> BTreeSet<usize> {
        (0..steps).filter(|&place| self.scripts[input][place] == Step::Record).collect()
    }

    fn check_aligned(&self, model: &Model, epoch: u64) {
        for input in 0..self.scripts.len() {
            let processed = self.records(input, model.taken[input]);
            let before = self.before(input, epoch);
            match self.alignment {
                Alignment::Aligned | Alignment::Unaligned { .. } => assert_eq!(processed, before, "{model:?}"),
                Alignment::AtLeastOnce => assert!(processed.is_superset(&before), "{model:?}"),
            }
        }
    }

    fn check_captured(&self, capture: &Capture) {
        for input in 0..self.scripts.len() {
            let mut both = self.records(input, capture.taken[input]).into_iter().collect::<Vec<_>>();
            both.extend(&capture.recorded[input]);
            let once = both.iter().copied().collect::<BTreeSet<_>>();
            assert_eq!(once.len(), both.len(), "input {input} has something twice: {capture:?} {:?}", self.scripts);
            assert_eq!(once, self.before(input, capture.epoch), "input {input}: {capture:?} {:?}", self.scripts);
        }
    }

    /// Nothing was held for ever, and an epoch whose barrier came on every input has its snapshot, unless there were more at a
    /// time than there may be: then the newest has.
    fn check_end(&self, model: &Model) {
        let scripts = &self.scripts;
        assert!(self.all_taken(model) && model.is_finished, "held for ever: {model:?} {scripts:?}");
        assert!(model.capture.is_none(), "captured for ever: {model:?} {scripts:?}");
        let on_all = |&epoch: &u64| (0..scripts.len()).all(|input| self.place_of(input, epoch).is_some());
        let epochs = (1..=3).filter(on_all).collect::<Vec<_>>();
        let unlimited = match self.alignment {
            Alignment::Aligned => true,
            Alignment::Unaligned { .. } => false,
            Alignment::AtLeastOnce => self.concurrent_max > 2,
        };
        let newest = (1..=3).rfind(|&epoch| (0..scripts.len()).any(|input| self.place_of(input, epoch).is_some()));
        for epoch in epochs.iter().filter(|epoch| unlimited || Some(**epoch) == newest) {
            assert!(model.snapshots.contains(epoch), "no snapshot of {epoch}: {model:?} {scripts:?}");
        }
    }
}

#[test]
fn in_every_mode_and_order_a_snapshot_holds_what_its_mode_promises() {
    use Step::{Barrier, End, Record};
    // An input may end at any point.
    let long = &[Record, Barrier(1), Record, Barrier(2), Record, End][..];
    let scripts = [long, &[Record, Barrier(1), Record, End], &[Record, End]];
    let short = [&[Record, Barrier(1), End][..], &[Record, End]];
    for (alignment, concurrent_max) in
        [(Alignment::Aligned, 2), (AT_ONCE, 1), (PATIENT, 1), (Alignment::AtLeastOnce, 2)]
    {
        let mut explored = Vec::new();
        for a in scripts {
            for b in scripts {
                explored.push(Explorer::run(alignment, concurrent_max, &[a, b]));
            }
        }
        for (b, c) in [(0, 0), (0, 1), (1, 1)] {
            explored.push(Explorer::run(alignment, concurrent_max, &[short[0], short[b], short[c]]));
        }
        assert!(explored.iter().all(|explorer| explorer.ends > 0), "{alignment:?}");
        let states = explored.iter().map(|explorer| explorer.seen.len()).sum::<usize>();
        assert!(states > 1_000, "{alignment:?}: {states} states");
    }
}

#[test]
fn barriers_that_are_left_out_hold_nothing_for_ever() {
    use Step::{Barrier, End, Record};
    let scripts = [
        &[Barrier(1), Record, Barrier(3), End][..],
        &[Barrier(2), Record, Barrier(3), End],
        &[Barrier(3), End],
        &[Barrier(1), Barrier(2), Barrier(3), End],
        &[Record, End],
    ];
    for (alignment, concurrent_max) in
        [(Alignment::Aligned, 1), (AT_ONCE, 1), (PATIENT, 1), (Alignment::AtLeastOnce, 2), (Alignment::AtLeastOnce, 3)]
    {
        for a in scripts {
            for b in scripts {
                assert!(Explorer::run(alignment, concurrent_max, &[a, b]).ends > 0);
            }
        }
    }
}
