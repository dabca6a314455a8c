//! The whole of an operator's keyed state, for a migration that changes keys: what becomes one subtask's own may have been
//! anybody's.
//!
//! Invariant: it is only read, lies in a folder of its own, and goes with it.

use std::path::PathBuf;

use super::error::StateError;
use super::keyed::KeyedState;

/// How to open it, once and only if it is needed: it costs as much as restoring all subtasks.
pub struct OpenWhole {
    pub dir: PathBuf,
    pub open: Box<dyn FnOnce() -> Result<KeyedState, StateError> + Send>,
}

/// The state of all subtasks of a checkpoint.
pub struct Whole {
    // `None` only while it is dropped.
    state: Option<KeyedState>,
    dir: PathBuf,
}

impl Whole {
    pub fn state(&self) -> &KeyedState {
        self.state.as_ref().expect("only dropping takes it")
    }
}

impl Drop for Whole {
    fn drop(&mut self) {
        // The database is closed before its files go.
        self.state = None;
        // What stays is removed with the attempt's work folder.
        let _ = std::fs::remove_dir_all(&self.dir);
    }
}

impl KeyedState {
    /// Says how the state of all subtasks can be had, if this is only a part of it.
    pub fn set_whole(&mut self, whole: OpenWhole) {
        self.whole = Some(whole);
    }

    /// The state of all subtasks; `None` if it can't be had (any more).
    ///
    /// # Errors
    /// If it can't be opened.
    pub fn open_whole(&mut self) -> Result<Option<Whole>, StateError> {
        let Some(OpenWhole { dir, open }) = self.whole.take() else { return Ok(None) };
        let state = Some(open()?);
        Ok(Some(Whole { state, dir }))
    }

    /// Lets go of what [`set_whole`](Self::set_whole) was told.
    pub fn forget_whole(&mut self) {
        self.whole = None;
    }

    /// Whether this is the state of all subtasks.
    pub fn is_whole(&self) -> bool {
        let all = self.space.max_parallelism.range(0, 1);
        self.space.key_groups == all
    }
}
