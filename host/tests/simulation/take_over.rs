//! How a new process shuts out all others with its transactional ids, and asks what was decided last.
//!
//! Invariant: when the marker is known, nobody but this process can write another.

use lockgate_host::id::{Attempt, JobUid};
use lockgate_host::protocol::decision::Marker;

use crate::broker::Handle;
use crate::mutation::Mutation;
use crate::world::World;

/// How far it is.
pub struct TakeOver {
    ids: [usize; 2],
    handles: [Option<Handle>; 2],
    next: Step,
}

enum Step {
    Peek,
    Fence(usize),
    End,
    Ask {
        end: usize,
    },
    /// For a process that asks too early.
    FenceLate(usize, Option<Marker>),
}

pub struct Taken {
    pub handles: [Option<Handle>; 2],
    pub marker: Option<Marker>,
}

impl TakeOver {
    pub fn new(attempt: Attempt, mutation: Option<Mutation>) -> TakeOver {
        let ids = match mutation {
            Some(Mutation::TakesNewIds) => [2 * attempt.0 as usize, 2 * attempt.0 as usize + 1],
            Some(_) | None => [0, 1],
        };
        TakeOver { ids, handles: [None; 2], next: Step::Peek }
    }

    /// Does one thing. `Some` when it is over.
    pub fn step(&mut self, world: &mut World, uid: &JobUid, mutation: Option<Mutation>) -> Option<Taken> {
        let handles = self.handles;
        match &mut self.next {
            Step::Peek => {
                let marker = world.broker.marker(None).flatten();
                if marker.as_ref().is_some_and(|marker| marker.job_uid != *uid) {
                    return Some(Taken { handles, marker });
                }
                self.next = match mutation {
                    Some(Mutation::AsksBeforeFencing) => Step::End,
                    Some(_) | None => Step::Fence(0),
                };
            }
            &mut Step::Fence(place) => {
                let forgets = place == 1 && mutation == Some(Mutation::ForgetsSecondId);
                if forgets || self.fence(place, world) {
                    self.next = if place == 0 { Step::Fence(1) } else { Step::End };
                }
            }
            Step::End => self.next = Step::Ask { end: world.broker.markers_end() },
            Step::Ask { end } => {
                let marker = match mutation {
                    Some(Mutation::AsksUnstable | Mutation::AsksBeforeFencing) => world.broker.marker(None)?,
                    Some(Mutation::AsksUncommitted) => world.broker.marker_uncommitted(),
                    Some(_) | None => world.broker.marker(Some(*end))?,
                };
                if mutation != Some(Mutation::AsksBeforeFencing) {
                    return Some(Taken { handles, marker });
                }
                self.next = Step::FenceLate(0, marker);
            }
            Step::FenceLate(place, marker) => {
                let (place, marker) = (*place, marker.clone());
                if self.fence(place, world) {
                    if place == 1 {
                        return Some(Taken { handles: self.handles, marker });
                    }
                    self.next = Step::FenceLate(1, marker);
                }
            }
        }
        None
    }

    fn fence(&mut self, place: usize, world: &mut World) -> bool {
        self.handles[place] = world.broker.init(self.ids[place]);
        self.handles[place].is_some()
    }
}
