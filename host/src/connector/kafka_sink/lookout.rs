//! When to look for what hangs of the last transaction of each of the two producers: before its id is taken over, and before it begins
//! another one, if brokers were away since the last one began.
//!
//! The brokers may be away for long, so nothing is held meanwhile that the commit of the other transaction needs, or a subtask that
//! has come to a barrier.
//!
//! Invariant: a transaction for which it is due isn't begun before it was looked, with nothing lost since.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};

use super::hanging::{Owner, Search};
use crate::connector::ConnectorError;
use crate::protocol::transactions::Transaction;

pub struct Lookout {
    search: Search,
    of: [Post; 2],
}

/// What is known of one of the two.
struct Post {
    id: String,
    /// How often the producer had lost its brokers when it was looked last, or when it last began without a need to look.
    seen: AtomicU64,
    /// Held by who looks.
    looking: Mutex<()>,
}

/// Held while it is looked for one of the two.
pub struct Watch<'a> {
    lookout: &'a Lookout,
    which: Transaction,
    _alone: MutexGuard<'a, ()>,
}

impl Lookout {
    pub fn new(search: Search, ids: &[String; 2]) -> Lookout {
        let post = |id: &String| Post { id: id.clone(), seen: AtomicU64::new(0), looking: Mutex::default() };
        Lookout { search, of: [post(&ids[0]), post(&ids[1])] }
    }

    fn post(&self, which: Transaction) -> &Post {
        match which {
            Transaction::A => &self.of[0],
            Transaction::B => &self.of[1],
        }
    }

    /// Ends what other processes, or attempts before, have left hanging. `is_over`: nobody waits for it any longer.
    ///
    /// # Errors
    /// If something hangs and can't be ended, or the brokers don't answer.
    pub fn end_past(&self, is_over: impl Fn() -> bool + Copy) -> Result<(), ConnectorError> {
        self.of.iter().try_for_each(|post| self.search.end_hanging(&post.id, Owner::Past, is_over))
    }

    /// Whether it is to be looked before the producer, which has lost its brokers so often by now, begins another transaction.
    pub fn is_due(&self, which: Transaction, losses: u64) -> bool {
        self.post(which).seen.load(Ordering::Relaxed) != losses
    }

    /// Who is to look; `None`: somebody else does.
    pub fn try_watch(&self, which: Transaction) -> Option<Watch<'_>> {
        let alone = match self.post(which).looking.try_lock() {
            Ok(alone) => alone,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return None,
        };
        Some(Watch { lookout: self, which, _alone: alone })
    }

    /// As [`try_watch`](Self::try_watch), and waits for its turn.
    pub fn watch(&self, which: Transaction) -> Watch<'_> {
        let alone = self.post(which).looking.lock().unwrap_or_else(PoisonError::into_inner);
        Watch { lookout: self, which, _alone: alone }
    }
}

impl Watch<'_> {
    /// Ends what hangs of the last transaction of this attempt, however long the brokers are away.
    ///
    /// # Errors
    /// As [`Lookout::end_past`].
    pub fn end_own(&self, is_over: impl Fn() -> bool) -> Result<(), ConnectorError> {
        self.lookout.search.end_hanging(&self.lookout.post(self.which).id, Owner::Own, is_over)
    }

    /// It was looked, from when the producer had lost its brokers so often. To be said only while no transaction is begun that may hang
    /// by one of these losses.
    pub fn has_seen(self, losses: u64) {
        self.lookout.post(self.which).seen.store(losses, Ordering::Relaxed);
    }
}
