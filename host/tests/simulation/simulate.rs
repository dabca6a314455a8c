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
    /// Checkpoints that a deciding sink has decided, and markers without one.
    pub decided: u64,
    pub adopted: u64,
    /// Checkpoints that were published and not decided.
    pub withdrawn: u64,
    pub unknown: u64,
    pub shut_out: u64,
    pub timed_out: u64,
    /// Jobs that lost something, and how many of them said that they can't go on.
    pub lost: u64,
    pub refused: u64,
    /// Upgrades that were adopted, those that a process found decided, and those that weren't.
    pub upgraded: u64,
    pub upgraded_late: u64,
    pub reverted: u64,
    /// Of those that were interrupted: what became of them the store alone says, or only a recovery.
    pub told_by_store: u64,
    pub told_at_recovery: u64,
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
        self.decided += other.decided;
        self.adopted += other.adopted;
        self.withdrawn += other.withdrawn;
        self.unknown += other.unknown;
        self.shut_out += other.shut_out;
        self.timed_out += other.timed_out;
        self.lost += other.lost;
        self.refused += other.refused;
        self.upgraded += other.upgraded;
        self.upgraded_late += other.upgraded_late;
        self.reverted += other.reverted;
        self.told_by_store += other.told_by_store;
        self.told_at_recovery += other.told_at_recovery;
    }

    fn of_world(&mut self, world: &World) {
        let oracle = &world.oracle;
        self.published = oracle.published;
        self.files_deleted = oracle.files_deleted;
        self.overtaken = oracle.overtaken;
        self.rescaled = oracle.rescaled;
        self.rescaled_in_flight = oracle.rescaled_in_flight;
        self.decided = oracle.decided;
        self.adopted = oracle.adopted;
        self.withdrawn = oracle.withdrawn;
        self.unknown = oracle.unknown;
        self.shut_out = oracle.shut_out;
        self.timed_out = oracle.timed_out;
        self.lost = u64::from(world.has_lost);
        self.refused = u64::from(world.refused.is_some());
        self.upgraded = oracle.upgraded;
        self.upgraded_late = oracle.upgraded_late;
        self.reverted = oracle.reverted;
        self.told_by_store = oracle.told_by_store;
        self.told_at_recovery = oracle.told_at_recovery;
    }
}

#[expect(clippy::large_enum_variant, reason = "there is one of it")]
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
    simulation.world.history = simulation.scenario.loss.is_some().then(Vec::new);
    let mut next_id = 0;
    for (round, (records, splits)) in simulation.scenario.rounds.clone().into_iter().enumerate() {
        let Scenario { has_files, log_from, .. } = simulation.scenario;
        simulation.world.has_log = log_from.is_some_and(|from| from <= round);
        simulation.world.oracle.watch(has_files, simulation.world.has_log, next_id);
        simulation.add_input(records, splits, &mut next_id);
        simulation.world.requests_left = simulation.scenario.requests;
        simulation.run_until_ended()?;
        // Run again, the job has nothing to do, and does nothing.
        simulation.world.requests_left = 0;
        let published = simulation.world.oracle.published;
        simulation.run_until_ended()?;
        if simulation.world.oracle.published > published && !simulation.world.has_lost {
            return Err(Violation("a checkpoint was published although there was no new input".to_owned()));
        }
    }
    simulation.story.of_world(&simulation.world);
    Ok(simulation.story)
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
        while self.world.refused.is_none() {
            self.story.steps += 1;
            if self.story.steps > STEPS_MAX {
                return Err(Violation("the job doesn't come to an end".to_owned()));
            }
            if self.crashes() {
                (self.trace)(&|| "       CRASH".to_owned());
                self.story.crashes += 1;
                self.story.crashes_in_recovery += u64::from(matches!(process, Process::Recovering(_)));
                self.leave(std::mem::replace(&mut process, Process::Recovering(Recovery::Identify)));
                self.abandoned.clear();
                continue;
            }
            self.run_abandoned()?;
            self.move_cluster()?;
            if matches!(process, Process::Recovering(Recovery::Identify)) && self.scenario.loss.is_some() {
                self.lose()?;
            }
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
                        Some(End::Finished { ended: true }) => return self.input_ended(),
                        Some(End::Finished { ended: false }) => {
                            self.story.stops += 1;
                            self.close(std::mem::replace(&mut process, Process::Recovering(Recovery::Identify)));
                        }
                        Some(End::Failed) => {
                            self.story.failures += 1;
                            self.faults_left = self.faults_left.saturating_sub(1);
                            self.close(std::mem::replace(&mut process, Process::Recovering(Recovery::Identify)));
                        }
                    }
                }
            }
        }
        Ok(())
    }

    /// The job says that all of its input is in the output.
    fn input_ended(&mut self) -> Result<(), Violation> {
        while self.world.broker.settle_one(&mut self.rng) {}
        self.world.look(&self.scenario)?;
        self.world.oracle.input_ended(&self.world.input, &self.scenario)
    }

    /// A process dies.
    fn leave(&mut self, process: Process) {
        match process {
            Process::Running(attempt) => attempt.leave(true, &mut self.world, &mut self.rng),
            Process::Recovering(recovery) => self.world.zombies.extend(recovery.into_decision()),
        }
    }

    /// A process ends in order.
    fn close(&mut self, process: Process) {
        if let Process::Running(attempt) = process {
            attempt.leave(false, &mut self.world, &mut self.rng);
        }
    }

    fn move_cluster(&mut self) -> Result<(), Violation> {
        if !self.world.has_log {
            return Ok(());
        }
        let comes = self.faults_left > 0 && self.rng.one_in(self.scenario.faults.time_out);
        // A transaction of which nobody takes the id over is ended by the cluster alone.
        let orphaned = self.scenario.mutation == Some(Mutation::TakesNewIds) && self.rng.one_in(100);
        if comes || orphaned {
            (self.trace)(&|| "       a transaction takes too long".to_owned());
            self.faults_left = self.faults_left.saturating_sub(u64::from(comes));
            self.world.time_out(&mut self.rng);
        }
        self.world.move_cluster(&self.scenario, &mut self.rng)
    }

    fn lose(&mut self) -> Result<(), Violation> {
        let Some(loss) = self.scenario.loss.take_if(|_| self.rng.one_in(3)) else { return Ok(()) };
        let comes = loss.strike(&mut self.world);
        (self.trace)(&|| format!("       {loss:?}: {comes}"));
        if !comes {
            self.scenario.loss = Some(loss);
        }
        self.world.look(&self.scenario)
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
        let _answer: Option<Event<()>> =
            self.world.publish(*epoch, manifest.clone(), &self.scenario)?.map(Event::Published);
        self.abandoned.remove(0);
        Ok(())
    }
}
