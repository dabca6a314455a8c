//! How a deciding sink makes a checkpoint count: marker and offsets into the transaction, its commit, the marker read back.
//!
//! Invariant: each call of [`Decision::step`] is one request to the cluster, and a crash or another process can come between two.

use std::collections::BTreeMap;

use lockgate_host::id::JobUid;
use lockgate_host::protocol::decision::Marker;

use crate::broker::{Decides, Denied, Handle};
use crate::mutation::Mutation;
use crate::oracle::Violation;
use crate::world::World;

/// One decision under way; that of a process that is gone may go on.
#[derive(Clone, Debug)]
pub struct Decision {
    pub handle: Handle,
    pub uid: JobUid,
    pub decides: Decides,
    /// By split; not if it only adopts.
    pub offsets: Option<BTreeMap<u32, u64>>,
    pub next: Request,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Request {
    Marker,
    Offsets,
    Commit,
    /// `end`: of the markers when it was begun.
    ReadBack {
        end: usize,
    },
}

/// What has become of a decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    Goes,
    Done,
    /// It is certain that it isn't decided, and never will be.
    Denied,
}

/// The answer to a commit that isn't as it should be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lost {
    /// The request never arrived.
    Request,
    /// It has arrived.
    Answer,
    /// It is still on its way.
    Underway,
}

impl Decision {
    pub fn step(&mut self, world: &mut World, mutation: Option<Mutation>) -> Result<Progress, Violation> {
        let outcome = match self.next {
            Request::Marker => {
                let empty = !self.decides.adopts && !world.broker.has_open(self.handle);
                if empty && mutation == Some(Mutation::SkipsMarkerWithoutOutput) {
                    return Ok(Progress::Done);
                }
                let marker = self.marker();
                self.next = Request::Offsets;
                if mutation == Some(Mutation::MarksOutside) && !self.decides.adopts {
                    world.broker.write_marker_outside(marker);
                    Ok(())
                } else {
                    world.broker.write_marker(self.handle, marker).inspect_err(|_| self.next = Request::Marker)
                }
            }
            Request::Offsets => {
                self.next = Request::Commit;
                match self.offsets.clone() {
                    Some(offsets) if mutation == Some(Mutation::CommitsOffsetsEarly) => {
                        world.broker.offsets = offsets;
                        Ok(())
                    }
                    Some(offsets) => {
                        world.broker.add_offsets(self.handle, offsets).inspect_err(|_| self.next = Request::Offsets)
                    }
                    None => Ok(()),
                }
            }
            Request::Commit => {
                let outcome = world.decide(self.handle, self.decides.clone())?;
                if outcome.is_ok() {
                    self.next = Request::ReadBack { end: world.broker.markers_end() };
                }
                outcome
            }
            Request::ReadBack { end } => return self.read_back(world, end),
        };
        match outcome {
            Ok(()) | Err(Denied::Busy) => Ok(Progress::Goes),
            Err(Denied::Fenced) => Ok(Progress::Denied),
        }
    }

    fn marker(&self) -> Marker {
        Marker { job_uid: self.uid.clone(), attempt: self.decides.attempt, decided: self.decides.decided }
    }

    fn read_back(&self, world: &World, end: usize) -> Result<Progress, Violation> {
        match world.broker.marker(Some(end)) {
            None => Ok(Progress::Goes),
            Some(found) if found.as_ref() == Some(&self.marker()) => Ok(Progress::Done),
            Some(found) => Err(Violation(format!("the marker is {found:?} after {:?} was committed", self.decides))),
        }
    }

    /// The commit goes out, and no certain answer comes.
    pub fn commit_blindly(mut self, lost: Lost, world: &mut World) -> Result<(), Violation> {
        match lost {
            Lost::Request => {}
            Lost::Answer => {
                let _nobody_learns_it = self.step(world, None)?;
            }
            Lost::Underway => world.zombies.push(self),
        }
        Ok(())
    }
}
