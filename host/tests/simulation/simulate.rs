//! Runs one seed: input comes in rounds, processes come and go, the oracle looks on.
//!
//! Invariant: a run is a function of its scenario and seed.

use lockgate_host::protocol::Event;

use crate::attempt::{Attempt, End, Shared};
use crate::mutation::Mutation;
use crate::operation::Operation;
use crate::oracle::Violation;
use crate::recovery::Recovery;
use crate::rng::Rng;
use crate::scenario::Scenario;
use crate::world::{Record, World};

/// More than any run needs once faults have stopped.
const STEPS_MAX: u64 = 200_000;

/// What a seed went through.
#[derive(Clone, Copy, Debug, Default)]
pub struct Story {
    pub steps: u64,
    pub crashes: u64,
    pub crashes_in_recovery: u64,
    pub failures: u64,
    pub stops: u64,
    pub published: u64,
    pub files_deleted: u64,
    /// Snapshots with records in flight.
    pub overtaken: u64,
    /// Attempts of another shape than the one before, and how many of them had records in flight to take up.
    pub rescaled: u64,
    pub rescaled_in_flight: u64,
}

impl Story {
    pub fn add(&mut self, other: &Story) {
        self.steps += other.steps;
        self.crashes += other.crashes;
        self.crashes_in_recovery += other.crashes_in_recovery;
        self.failures += other.failures;
        self.stops += other.stops;
        self.published += other.published;
        self.files_deleted += other.files_deleted;
        self.overtaken += other.overtaken;
        self.rescaled += other.rescaled;
        self.rescaled_in_flight += other.rescaled_in_flight;
    }
}

enum Process {
    Recovering(Recovery),
    Running(Box<Attempt>),
}

struct Simulation<'a> {
    scenario: Scenario,
    rng: Rng,
    world: World,
    faults_left: u64,
    /// A crash that is certain, in so many steps.
    crash_in: Option<u64>,
    /// Publishes of attempts that are no more, of which nobody takes the answer.
    abandoned: Vec<Operation>,
    story: Story,
    trace: &'a mut dyn FnMut(&dyn Fn() -> String),
}

/// Runs a seed to its end. `trace` gets a line for each thing that happens.
pub fn simulate(
    seed: u64,
    mutation: Option<Mutation>,
    trace: &mut dyn FnMut(&dyn Fn() -> String),
) -> Result<Story, Violation> {
    let scenario = Scenario::new(seed, mutation);
    trace(&|| format!("{scenario:#?}"));
    let mut simulation = Simulation {
        rng: Rng::new(!seed),
        world: World::new(scenario.shape, scenario.alignment),
        faults_left: scenario.faults.budget,
        crash_in: None,
        abandoned: Vec::new(),
        story: Story::default(),
        scenario,
        trace,
    };
    let mut next_id = 0;
    for (records, splits) in simulation.scenario.rounds.clone() {
        simulation.add_input(records, splits, &mut next_id);
        simulation.run_until_ended()?;
        // Run again, the job has nothing to do, and does nothing.
        let published = simulation.world.oracle.published;
        simulation.run_until_ended()?;
        if simulation.world.oracle.published > published {
            return Err(Violation("a checkpoint was published although there was no new input".to_owned()));
        }
    }
    let Simulation { mut story, world, .. } = simulation;
    story.published = world.oracle.published;
    story.files_deleted = world.oracle.files_deleted;
    story.overtaken = world.oracle.overtaken;
    story.rescaled = world.oracle.rescaled;
    story.rescaled_in_flight = world.oracle.rescaled_in_flight;
    Ok(story)
}

impl Simulation<'_> {
    fn add_input(&mut self, records: u64, splits: u32, next_id: &mut u64) {
        self.world.input.resize(splits as usize, Vec::new());
        let mut added = Vec::new();
        for _ in 0..records {
            let split = self.rng.below(u64::from(splits)) as u32;
            let side = self.scenario.side_of(split);
            let record = Record { id: *next_id, key: self.rng.below(self.scenario.keys), side, split };
            *next_id += 1;
            self.world.input[split as usize].push(record);
            added.push(record);
        }
        self.world.oracle.input_grew(&added, &self.world.input, &self.scenario);
    }

    /// Starts processes until one says that all input is in the output.
    fn run_until_ended(&mut self) -> Result<(), Violation> {
        let mut process = Process::Recovering(Recovery::Identify);
        loop {
            self.story.steps += 1;
            if self.story.steps > STEPS_MAX {
                return Err(Violation("the job doesn't come to an end".to_owned()));
            }
            if self.crashes() {
                (self.trace)(&|| "       CRASH".to_owned());
                self.story.crashes += 1;
                self.story.crashes_in_recovery += u64::from(matches!(process, Process::Recovering(_)));
                process = Process::Recovering(Recovery::Identify);
                self.abandoned.clear();
                continue;
            }
            self.run_abandoned()?;
            let mut shared = Shared {
                scenario: &self.scenario,
                rng: &mut self.rng,
                world: &mut self.world,
                faults_left: &mut self.faults_left,
                trace: &mut *self.trace,
            };
            match &mut process {
                Process::Recovering(recovery) => {
                    if let Some(attempt) = recovery.step(&mut shared)? {
                        process = Process::Running(Box::new(attempt));
                    }
                }
                Process::Running(attempt) => {
                    let mut end = attempt.step(&mut shared)?;
                    if self.scenario.mutation == Some(Mutation::RestartsDuringPublish)
                        && attempt.end == Some(End::Failed)
                    {
                        self.abandoned.append(&mut attempt.operations);
                        end = attempt.end;
                    }
                    match end {
                        None => {}
                        Some(End::Finished { ended: true }) => {
                            return self.world.oracle.input_ended(&self.world.input, &self.scenario);
                        }
                        Some(End::Finished { ended: false }) => {
                            self.story.stops += 1;
                            process = Process::Recovering(Recovery::Identify);
                        }
                        Some(End::Failed) => {
                            self.story.failures += 1;
                            self.faults_left = self.faults_left.saturating_sub(1);
                            process = Process::Recovering(Recovery::Identify);
                        }
                    }
                }
            }
        }
    }

    /// Whether the process dies here. One crash in three is followed by another soon, often during the recovery.
    fn crashes(&mut self) -> bool {
        let certain = match &mut self.crash_in {
            Some(0) => true,
            Some(steps) => {
                *steps -= 1;
                false
            }
            None => false,
        };
        let comes = certain || (self.faults_left > 0 && self.rng.one_in(self.scenario.faults.crash));
        if comes {
            self.faults_left = self.faults_left.saturating_sub(1);
            self.crash_in = (self.faults_left > 0 && self.rng.one_in(3)).then(|| self.rng.below(12));
        }
        comes
    }

    fn run_abandoned(&mut self) -> Result<(), Violation> {
        self.abandoned.retain(|operation| matches!(operation, Operation::Publish { .. }));
        let Some(operation) = self.abandoned.first_mut() else { return Ok(()) };
        if !self.rng.one_in(20) {
            return Ok(());
        }
        let Operation::Publish { epoch, manifest, .. } = operation else { unreachable!("only those are kept") };
        (self.trace)(&|| format!("       an old attempt publishes {epoch}"));
        let _answer: Option<Event<()>> = self.world.publish(*epoch, manifest.clone())?.map(Event::Published);
        self.abandoned.remove(0);
        Ok(())
    }
}
