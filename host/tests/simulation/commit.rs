//! The commit of a checkpoint: the decision first, where a sink makes it, then the parts of the two-phase sink.
//!
//! Invariant: each step may fail before it has happened or after, and nobody learns which.

use std::collections::VecDeque;
use std::time::Duration;

use lockgate_host::id::Epoch;
use lockgate_host::protocol::decision::Digest;
use lockgate_host::protocol::{CommitPermit, Event, PublishReceipt};

use crate::attempt::Shared;
use crate::decision::{Decision, Lost, Progress, Request};
use crate::log_sink::{Decide, LogSink};
use crate::mutation::Mutation;
use crate::operation::Answer;
use crate::oracle::Violation;
use crate::world::TaskSnapshot;

pub struct Commit {
    permit: CommitPermit,
    deciding: Deciding,
    parts: VecDeque<String>,
    /// The answer was given already.
    answered: bool,
}

enum Deciding {
    /// There is nothing to decide any more.
    Over,
    Due(Decide),
    Underway(Decision),
}

/// A commit that nothing has allowed: what a shell would do that makes its own receipt.
pub fn early_commit(epoch: Epoch, parts: Vec<String>) -> Commit {
    let permit = CommitPermit::new(PublishReceipt::for_published(epoch, Digest(epoch.0)));
    Commit::new(permit, None, parts, true)
}

impl Commit {
    pub fn new(permit: CommitPermit, decide: Option<Decide>, parts: Vec<String>, answered: bool) -> Commit {
        let deciding = decide.map_or(Deciding::Over, Deciding::Due);
        Commit { permit, deciding, parts: parts.into(), answered }
    }

    pub fn into_decision(self) -> Option<Decision> {
        match self.deciding {
            Deciding::Underway(decision) if !matches!(decision.next, Request::ReadBack { .. }) => Some(decision),
            Deciding::Over | Deciding::Due(_) | Deciding::Underway(_) => None,
        }
    }

    pub fn step(
        &mut self,
        log: Option<(&mut LogSink, Duration)>,
        shared: &mut Shared<'_>,
    ) -> Result<Answer, Violation> {
        let early = shared.scenario.mutation == Some(Mutation::CommitsBeforeDecision) && !self.parts.is_empty();
        let answer = match log {
            Some((log, now)) if !early && !matches!(self.deciding, Deciding::Over) => self.decide(log, now, shared)?,
            Some(_) | None => self.commit(shared)?,
        };
        Ok(answer.map(|event| if self.answered { Vec::new() } else { vec![event] }))
    }

    fn failed(&self, reason: &str) -> Event<TaskSnapshot> {
        Event::CommitFailed { epoch: self.permit.epoch(), reason: reason.to_owned() }
    }

    fn decide(
        &mut self,
        log: &mut LogSink,
        now: Duration,
        shared: &mut Shared<'_>,
    ) -> Result<Option<Event<TaskSnapshot>>, Violation> {
        let mutation = shared.scenario.mutation;
        if let Deciding::Due(decide) = &self.deciding {
            if let Some(decision) = log.begin(decide, &mut shared.world.broker) {
                self.deciding = Deciding::Underway(decision);
            }
            return Ok(None);
        }
        let Deciding::Underway(decision) = &mut self.deciding else { return Ok(None) };
        if decision.next == Request::Commit && shared.fault(shared.scenario.faults.decision_failure) {
            let lost = *shared.rng.pick(&[Lost::Request, Lost::Answer, Lost::Underway]);
            (shared.trace)(&|| format!("       commit without an answer: {lost:?}"));
            shared.world.oracle.unknown += 1;
            decision.clone().commit_blindly(lost, shared.world)?;
            if mutation == Some(Mutation::AssumesSuccess) {
                self.deciding = Deciding::Over;
                log.decided(self.permit.epoch(), now);
                return Ok(None);
            }
            self.deciding = Deciding::Over;
            if mutation == Some(Mutation::AssumesFailure) {
                shared.world.withdraw(self.permit.epoch())?;
            }
            return Ok(Some(self.failed("it isn't known whether it is decided")));
        }
        (shared.trace)(&|| format!("       {:?}", decision.next));
        match decision.step(shared.world, mutation)? {
            Progress::Goes => Ok(None),
            Progress::Done => {
                self.deciding = Deciding::Over;
                log.decided(self.permit.epoch(), now);
                Ok(None)
            }
            Progress::Denied => Ok(Some(self.failed("its producer was shut out"))),
        }
    }

    fn commit(&mut self, shared: &mut Shared<'_>) -> Result<Option<Event<TaskSnapshot>>, Violation> {
        if shared.fault(shared.scenario.faults.commit_failure) {
            // All of it, none of it or some of it is done.
            let done = shared.rng.between(0, self.parts.len() as u64) as usize;
            for part in self.parts.drain(..done) {
                shared.world.commit_part(&self.permit, &part)?;
            }
            return Ok(Some(self.failed("the answer is lost")));
        }
        let epoch = self.permit.epoch();
        if let Some(part) = self.parts.pop_front() {
            shared.world.commit_part(&self.permit, &part)?;
            return Ok(None);
        }
        shared.world.files_committed = Some(epoch);
        shared.world.check_files(epoch, shared.scenario)?;
        Ok(Some(Event::Committed(epoch)))
    }
}
