//! Opens the keyed state of one subtask from a checkpoint.
//!
//! Invariant: a subtask takes up its own key groups and no others; the rest is read only if a migration asks for it.

use std::path::Path;

use crate::state::{KeyedState, OpenWhole, StateError, StateOptions, TransferError};
use crate::store::{CheckpointStore, FileRef, KeyedSnapshot};

/// Opens a subtask's part of what all subtasks had. Blocks.
///
/// # Errors
/// If the snapshots can't be used, or a file can't be fetched or made.
pub fn open(store: &CheckpointStore, options: StateOptions, all: Vec<KeyedSnapshot>) -> Result<KeyedState, StateError> {
    let store = store.clone();
    let fetch = move |file: &FileRef, to: &Path| store.fetch(file, to).map_err(TransferError::from);
    let own = all.iter().filter(|snapshot| snapshot.key_groups.overlaps(options.key_groups)).cloned();
    let own = own.collect::<Vec<_>>();
    let dir = options.work_dir.with_extension("whole");
    let key_groups = options.max_parallelism.range(0, 1);
    let whole = StateOptions { work_dir: dir.clone(), key_groups, ..options.clone() };
    let mut state = KeyedState::open(options, &own, &fetch)?;
    if !state.outdated().is_empty() && !state.is_whole() {
        state.set_whole(OpenWhole { dir, open: Box::new(move || KeyedState::open(whole, &all, &fetch)) });
    }
    Ok(state)
}
