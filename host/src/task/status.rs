//! What a task is doing, shared with the runtime, which tells the user when a checkpoint waits for it.
//!
//! Invariant: a task writes it and never reads it.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::InputLabel;
use crate::id::{Epoch, Name};
use crate::protocol::Input;

/// How long a task must have worked on one element for that to be worth telling.
const LONG: Duration = Duration::from_secs(1);
/// So many inputs are named one by one.
const NAMED_MAX: usize = 3;

pub struct TaskStatus {
    /// The task's chain, by the names of its subtasks.
    chain: String,
    labels: Vec<Arc<InputLabel>>,
    started: Instant,
    /// Nanoseconds from `started` to where the work on the element began that is worked on, plus 1; 0 while the task waits.
    working_since: AtomicU64,
    seen: Mutex<Seen>,
}

#[derive(Default)]
struct Seen {
    /// The newest epoch whose snapshot was handed over.
    taken: Option<Epoch>,
    owed: Option<(Epoch, Vec<Input>)>,
    /// Whose channel has no room.
    blocked_by: Option<Name>,
}

impl TaskStatus {
    pub fn new(chain: String, labels: Vec<Arc<InputLabel>>) -> TaskStatus {
        let (working_since, seen) = (AtomicU64::new(0), Mutex::default());
        TaskStatus { chain, labels, started: Instant::now(), working_since, seen }
    }

    pub fn chain(&self) -> &str {
        &self.chain
    }

    /// The work on an element has begun.
    pub fn begins_work(&self, now: Instant) {
        let since = now.saturating_duration_since(self.started).as_nanos() as u64;
        self.working_since.store(since + 1, Ordering::Relaxed);
    }

    pub fn waits(&self) {
        self.working_since.store(0, Ordering::Relaxed);
    }

    /// The snapshot of an epoch was handed over.
    pub fn took(&self, epoch: Epoch) {
        self.lock().taken = Some(epoch);
    }

    /// These inputs owe the barrier of an epoch.
    pub fn owes(&self, owed: Option<(Epoch, Vec<Input>)>) {
        self.lock().owed = owed;
    }

    /// The task waits, or no longer waits, for room.
    pub fn blocked(&self, by: Option<&Name>) {
        self.lock().blocked_by = by.cloned();
    }

    /// Why there is no snapshot of `epoch` from this task.
    pub fn why_missing(&self, epoch: Epoch) -> String {
        let seen = self.lock();
        if seen.taken >= Some(epoch) {
            return format!("{} still saves its snapshot", self.chain);
        }
        let mut why = match &seen.owed {
            Some((owed, inputs)) if *owed == epoch && !inputs.is_empty() => {
                format!("{} waits for the barrier of {}", self.chain, self.named(inputs))
            }
            Some(_) | None => format!("the barrier has not reached {}", self.chain),
        };
        if let Some(by) = &seen.blocked_by {
            why.push_str(&format!(", which waits for room in its channel to '{by}'"));
        }
        if let Some(worked) = self.works_for().filter(|worked| *worked >= LONG) {
            why.push_str(&format!(", which has been in one call for {} s", worked.as_secs()));
        }
        why
    }

    fn named(&self, inputs: &[Input]) -> String {
        let name = |input: &Input| {
            let InputLabel { from, name, .. } = &*self.labels[input.0];
            if name.is_empty() { from.to_string() } else { format!("{from} on input '{name}'") }
        };
        let mut names = inputs.iter().take(NAMED_MAX).map(name).collect::<Vec<_>>();
        if inputs.len() > NAMED_MAX {
            names.push(format!("{} more", inputs.len() - NAMED_MAX));
        }
        names.join(", ")
    }

    fn works_for(&self) -> Option<Duration> {
        let since = self.working_since.load(Ordering::Relaxed).checked_sub(1)?;
        self.started.elapsed().checked_sub(Duration::from_nanos(since))
    }

    fn lock(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::Exchange;
    use crate::id::SubtaskId;

    fn join() -> TaskStatus {
        let label = |name: &str, from: &str, index| {
            let from = SubtaskId { operator: Name::new(from).expect("a name"), index };
            let (output, exchange) = (String::new(), Exchange::Hash);
            Arc::new(InputLabel { port: 0, name: name.to_owned(), from, output, exchange })
        };
        let labels = vec![label("orders", "orders", 0), label("rules", "files", 0), label("rules", "files", 1)];
        TaskStatus::new("join[1]".to_owned(), labels)
    }

    #[test]
    fn what_a_checkpoint_waits_for_is_named_with_operator_and_input() {
        let status = join();
        assert_eq!(status.why_missing(Epoch(7)), "the barrier has not reached join[1]");
        status.owes(Some((Epoch(7), vec![Input(0)])));
        assert_eq!(status.why_missing(Epoch(7)), "join[1] waits for the barrier of orders[0] on input 'orders'");
        assert_eq!(status.why_missing(Epoch(8)), "the barrier has not reached join[1]");
        status.owes(Some((Epoch(7), vec![Input(0), Input(2)])));
        let both = "join[1] waits for the barrier of orders[0] on input 'orders', files[1] on input 'rules'";
        assert_eq!(status.why_missing(Epoch(7)), both);
        status.took(Epoch(7));
        assert_eq!(status.why_missing(Epoch(7)), "join[1] still saves its snapshot");
    }

    #[test]
    fn a_task_in_a_long_call_and_one_without_room_say_so() {
        let status = join();
        status.blocked(Some(&Name::new("out").expect("a name")));
        let blocked = "the barrier has not reached join[1], which waits for room in its channel to 'out'";
        assert_eq!(status.why_missing(Epoch(1)), blocked);
        status.blocked(None);
        status.working_since.store(1, Ordering::Relaxed);
        let old = Instant::now().checked_sub(Duration::from_secs(90)).expect("a machine that runs for longer");
        let status = TaskStatus { started: old, ..status };
        let long = "the barrier has not reached join[1], which has been in one call for 90 s";
        assert_eq!(status.why_missing(Epoch(1)), long);
        status.waits();
        assert_eq!(status.why_missing(Epoch(1)), "the barrier has not reached join[1]");
    }
}
