//! What carries items from a task to another, and can record what comes before a barrier.
//!
//! Invariant: a recording has each item once that is queued when it begins, or comes after that, and is before the barrier.

use std::collections::VecDeque;

use lockgate_host::element::{Barrier, WATERMARK_END};
use lockgate_host::id::Epoch;

use crate::mutation::Mutation;
use crate::world::{Record, Row};

/// What a channel carries, a record at a time.
#[derive(Clone, Debug)]
pub enum Item {
    Record { record: Record, time: i64 },
    Row(Row),
    Watermark(i64),
    Barrier(Barrier),
    Idle,
    Active,
    End,
}

impl Item {
    pub fn is_data(&self) -> bool {
        matches!(self, Item::Record { .. } | Item::Row(_))
    }
}

/// From which operator a channel comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum From {
    /// A source of this side.
    Source(usize),
    Counter,
}

#[derive(Debug)]
pub struct Channel {
    pub from: From,
    pub items: VecDeque<Item>,
    /// Its sender has promised that no data comes any more, which it doesn't when it is stopped.
    pub is_read_out: bool,
    /// A barrier that the receiver hasn't heard of.
    pub announced: Option<Barrier>,
    newest: Option<Epoch>,
    recording: Option<Recording>,
}

#[derive(Debug)]
struct Recording {
    epoch: Epoch,
    items: Vec<Item>,
    open: bool,
}

impl Channel {
    pub fn new(from: From) -> Channel {
        Channel { from, items: VecDeque::new(), is_read_out: false, announced: None, newest: None, recording: None }
    }

    pub fn push(&mut self, item: Item, announces: bool, mutation: Option<Mutation>) {
        self.is_read_out |= matches!(item, Item::Watermark(WATERMARK_END));
        let recorded_to = self.recording.as_ref().filter(|recording| recording.open).map(|recording| recording.epoch);
        if let Some(recording) = &mut self.recording {
            match &item {
                Item::Record { .. } | Item::Row(_) => {
                    if recording.open {
                        recording.items.push(item.clone());
                    }
                }
                Item::Barrier(barrier) => {
                    recording.open &= barrier.epoch < recording.epoch || mutation == Some(Mutation::RecordsPastBarrier);
                }
                Item::End => recording.open = false,
                Item::Watermark(_) | Item::Idle | Item::Active => {}
            }
        }
        if let Item::Barrier(barrier) = &item {
            self.newest = Some(barrier.epoch);
            self.announced = announces.then_some(*barrier);
            if recorded_to == Some(barrier.epoch) {
                // It has overtaken all that is queued.
                return;
            }
            if mutation == Some(Mutation::BarrierOvertakes) {
                self.items.push_front(item);
                return;
            }
        }
        self.items.push_back(item);
    }

    /// Begins to record what comes before the barrier of an epoch.
    pub fn record(&mut self, epoch: Epoch, mutation: Option<Mutation>) {
        let came = self.newest >= Some(epoch);
        let is_barrier = |item: &Item| matches!(item, Item::Barrier(barrier) if barrier.epoch == epoch);
        let place = self.items.iter().position(is_barrier);
        let ahead = place.unwrap_or(if came { 0 } else { self.items.len() });
        let ahead = if mutation == Some(Mutation::ForgetsQueued) { 0 } else { ahead };
        let items = self.items.iter().take(ahead).filter(|item| item.is_data()).cloned().collect();
        let has_ended = self.items.iter().any(|item| matches!(item, Item::End));
        self.recording = Some(Recording { epoch, items, open: !came && !has_ended });
        if let Some(place) = place {
            self.items.remove(place);
        }
    }

    /// Whether so much is recorded that nothing is taken any more before the barrier comes.
    pub fn waits(&self, items_max: usize) -> bool {
        self.recording.as_ref().is_some_and(|recording| recording.open && recording.items.len() >= items_max)
    }

    pub fn recorded(&mut self) -> Vec<Item> {
        self.recording.take().map(|recording| recording.items).unwrap_or_default()
    }
}
