//! Makes the trial of a capsule again.
//!
//! The keyed state is a real one in a folder of its own, with the entries that the capsule holds: so all checks are those of a job.
//! As long as the component asks what the recorded trial had asked, it gets the recorded answers.
//!
//! Invariant: what is replayed leaves nothing behind, and reaches nothing but its own folder.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use super::capsule::{Capsule, Outcome};
use super::error::ReplayError;
use crate::element::Column;
use crate::guest::{Descriptor, Effects, Engine, Entry, Line, Plugin, Read, Repeat};
use crate::id::{Attempt, Name};
use crate::state::{BlockCache, KeyedState, StateOptions};
use crate::store::FileRef;

/// What came of a replay.
#[derive(Clone, Debug)]
pub struct Rerun {
    pub outcome: Outcome,
    pub effects: Effects,
    pub reads: Vec<Read>,
    /// What it has logged; a panic's message is the last line.
    pub lines: Vec<Line>,
    /// It read something else than the capsule tells.
    pub diverged: bool,
    /// The component that ran.
    pub sha256: String,
    pub component: String,
}

impl Rerun {
    /// Whether it has failed as the capsule tells.
    pub fn is_same_failure(&self, capsule: &Capsule) -> bool {
        self.outcome == capsule.tried
    }

    /// Whether it has also read, emitted and written the same, bit for bit. A call that ran out of time may have come farther.
    pub fn is_bit_for_bit(&self, capsule: &Capsule) -> bool {
        let same = !self.diverged && self.effects == capsule.effects && self.reads == capsule.reads;
        self.is_same_failure(capsule) && (same || self.outcome.is_timed())
    }
}

/// Replays a capsule with the component that it holds.
///
/// # Errors
/// If the component or the state can't be used, or there is no room for them.
pub fn rerun(engine: &Engine, capsule: &Capsule) -> Result<Rerun, ReplayError> {
    let scratch = Scratch::new()?;
    let path = scratch.0.join("component.wasm");
    fs::write(&path, &capsule.component.bytes).map_err(|source| ReplayError::File {
        action: "write",
        path: path.clone(),
        source,
    })?;
    let operator = &capsule.place.subtask.operator;
    let plugin =
        engine.load_within(operator, &path, capsule.limits()).map_err(|source| ReplayError::Component { source })?;
    run(capsule, &plugin, &scratch)
}

/// Replays a capsule with another build of its operator.
///
/// # Errors
/// If the component can't be used, or has other inputs or versions of tables.
pub fn rerun_with(engine: &Engine, capsule: &Capsule, wasm: &Path) -> Result<Rerun, ReplayError> {
    let operator = &capsule.place.subtask.operator;
    let plugin =
        engine.load_within(operator, wasm, capsule.limits()).map_err(|source| ReplayError::Other { source })?;
    run(capsule, &plugin, &Scratch::new()?)
}

fn run(capsule: &Capsule, plugin: &Plugin, scratch: &Scratch) -> Result<Rerun, ReplayError> {
    let descriptor = plugin.descriptor();
    let tables = places_of_tables(capsule, descriptor)?;
    let mut trial = capsule.trial.clone();
    if let crate::guest::TrialCall::Process { port, .. } = &mut trial.call {
        *port = place_of_input(&capsule.inputs[*port as usize], descriptor)?;
    }
    let state = if descriptor.is_keyed() { Some(state(capsule, descriptor, &tables, scratch)?) } else { None };
    // Answers name tables by number.
    let are_in_place = tables.iter().zip(0..).all(|(place, number)| *place == Some(number));
    let reads = if are_in_place { capsule.reads.clone() } else { Vec::new() };
    let repeat = Repeat { trial: &trial, draws: capsule.draws, reads };
    let tried = plugin.repeat(&capsule.place, capsule.limits(), state, repeat);
    let recorded = tried.recorded;
    Ok(Rerun {
        outcome: Outcome::of(&tried.outcome),
        effects: recorded.effects,
        reads: recorded.reads,
        lines: recorded.lines,
        diverged: recorded.diverged,
        sha256: plugin.hash().to_owned(),
        component: format!("{} {}", descriptor.name, descriptor.version),
    })
}

fn place_of_input(input: &Name, descriptor: &Descriptor) -> Result<u32, ReplayError> {
    let place = descriptor.inputs.iter().position(|known| known.name == *input);
    place
        .map(|place| place as u32)
        .ok_or_else(|| ReplayError::Unsuited { problem: format!("it has no input '{input}'") })
}

/// The number that each table of the capsule has in the component; `None`: it isn't there any more.
fn places_of_tables(capsule: &Capsule, descriptor: &Descriptor) -> Result<Vec<Option<u32>>, ReplayError> {
    let place = |table: &super::TableOf| {
        let Some(place) = descriptor.tables.iter().position(|known| known.name == table.name) else { return Ok(None) };
        let version = descriptor.tables[place].version;
        if version == table.version {
            return Ok(Some(place as u32));
        }
        let super::TableOf { name, version: held } = table;
        let problem = format!("it reads version {version} of the table '{name}', and the capsule holds version {held}");
        Err(ReplayError::Unsuited { problem })
    };
    capsule.tables.iter().map(place).collect()
}

fn state(
    capsule: &Capsule,
    descriptor: &Descriptor,
    tables: &[Option<u32>],
    scratch: &Scratch,
) -> Result<KeyedState, ReplayError> {
    const BLOCK_CACHE_BYTES_MAX: usize = 1 << 20;
    let place = &capsule.place;
    let options = StateOptions {
        work_dir: scratch.0.join("state"),
        subtask: place.subtask.clone(),
        key_groups: capsule.max_parallelism.range(place.subtask.index, place.parallelism),
        max_parallelism: capsule.max_parallelism,
        attempt: Attempt(1),
        tables: descriptor.stored_tables(),
        memory_bytes_max: capsule.state_memory_bytes_max(),
        block_cache: BlockCache::new(BLOCK_CACHE_BYTES_MAX),
    };
    let nothing = |file: &FileRef, _: &Path| Err(format!("there is no file {}", file.path).into());
    let failed = |source| ReplayError::State { source };
    let mut state = KeyedState::open(options, &[], &nothing).map_err(failed)?;
    for Entry { table, key, user_key, value } in &capsule.entries {
        let Some(table) = tables[*table as usize] else { continue };
        let [key, user_key, value] = [key, user_key, value].map(|bytes| {
            let mut column = Column::with_capacity(1, bytes.len());
            column.push(bytes);
            column
        });
        state.write_many(table, &key, &user_key, &value, &[]).and_then(|()| state.accept()).map_err(failed)?;
    }
    Ok(state)
}

/// A folder that is there as long as this is.
struct Scratch(PathBuf);

impl Scratch {
    fn new() -> Result<Scratch, ReplayError> {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        loop {
            let number = NUMBER.fetch_add(1, Ordering::Relaxed);
            let path = std::env::temp_dir().join(format!("lockgate-replay-{}-{number}", std::process::id()));
            match create_private(&path) {
                Ok(()) => return Ok(Scratch(path)),
                // Of a process that had the same number and was killed, or somebody else's: not ours to use.
                Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {}
                Err(source) => return Err(ReplayError::File { action: "create the folder", path, source }),
            }
        }
    }
}

/// For this user alone: a record may be nobody else's business.
fn create_private(path: &Path) -> std::io::Result<()> {
    use std::os::unix::fs::DirBuilderExt;
    fs::DirBuilder::new().mode(0o700).create(path)
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // In the folder for temporary files it is in nobody's way.
        let _ = fs::remove_dir_all(&self.0);
    }
}
