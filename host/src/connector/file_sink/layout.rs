//! Where everything of an output folder is. Pure.
//!
//! Invariant: every path is made of numbers and an extension that has been checked, never of text from a checkpoint.

use std::path::{Path, PathBuf};

use crate::id::{Attempt, Epoch};

/// The paths of one output folder.
#[derive(Clone, Debug)]
pub struct Layout {
    out: PathBuf,
}

impl Layout {
    pub fn new(out: &Path) -> Layout {
        Layout { out: out.to_owned() }
    }

    /// The output folder.
    pub fn out(&self) -> &Path {
        &self.out
    }

    /// The output folder for people who may be elsewhere.
    pub fn shown(&self) -> String {
        std::path::absolute(&self.out).unwrap_or_else(|_| self.out.clone()).to_string_lossy().into_owned()
    }

    /// All that isn't output.
    pub fn hidden(&self) -> PathBuf {
        self.out.join(".lockgate")
    }

    pub fn owner(&self) -> PathBuf {
        self.hidden().join("owner.json")
    }

    pub fn committed(&self) -> PathBuf {
        self.hidden().join("committed.json")
    }

    pub fn staging(&self) -> PathBuf {
        self.hidden().join("staging")
    }

    pub fn attempt(&self, attempt: Attempt) -> PathBuf {
        self.staging().join(attempt.to_string())
    }

    /// A file that is being written or waits for its commit. `number` counts the files of a subtask within an attempt.
    pub fn staged(&self, attempt: Attempt, subtask: u32, number: u64) -> PathBuf {
        self.attempt(attempt).join(format!("part-{subtask:04}-{number:06}"))
    }

    /// Committed output: the `roll`-th file of a subtask in an epoch.
    pub fn part(&self, epoch: Epoch, subtask: u32, roll: usize, extension: &str) -> PathBuf {
        self.out.join(match roll {
            0 => format!("part-{:08}-{subtask:04}.{extension}", epoch.0),
            _ => format!("part-{:08}-{subtask:04}-{roll:04}.{extension}", epoch.0),
        })
    }
}
