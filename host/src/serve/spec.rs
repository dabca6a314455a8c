//! What the data folder says of a job: its job file, its components, whether it is to run, and what became of it.
//!
//! Invariant: one file says all of it and is replaced as a whole, so that a job file never stands beside components or wishes of
//! another one.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::durable::{create_folder, read_sealed, rename, replace, replace_sealed};
use super::error::ServeError;
use super::folder::{DataFolder, job_file_in, spec_in};
use super::info::{FailureInfo, UpgradingInfo};
use crate::crash;
use crate::id::{Name, PluginHash};

/// The layout that this host writes. It reads this one.
const SPEC_VERSION: u32 = 1;

/// A job as the data folder has it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct JobSpec {
    pub version: u32,
    pub name: Name,
    pub job_toml: String,
    pub base_dir: Option<PathBuf>,
    /// By operator. What the job file says of them counted when it was submitted; upgrades have come since.
    pub plugins: BTreeMap<Name, PluginHash>,
    pub wanted: Wanted,
    /// What became of its last run; `None` if it is to run.
    pub outcome: Option<Outcome>,
    /// An upgrade that was under way. Which component the job has then, its newest checkpoint says.
    pub upgrading: Option<UpgradingInfo>,
    pub submitted_at_ms: u64,
}

/// What is wanted of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Wanted {
    /// It is started with the daemon.
    Running,
    Stopped,
}

/// What became of a job's last run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// Its input had ended.
    Ended,
    /// Somebody stopped it.
    Stopped,
    /// For good.
    Failed(FailureInfo),
}

impl JobSpec {
    /// Of a job that is to run.
    pub fn new(
        name: Name,
        job_toml: String,
        base_dir: Option<PathBuf>,
        plugins: BTreeMap<Name, PluginHash>,
        submitted_at_ms: u64,
    ) -> JobSpec {
        let (version, wanted) = (SPEC_VERSION, Wanted::Running);
        JobSpec { version, name, job_toml, base_dir, plugins, wanted, outcome: None, upgrading: None, submitted_at_ms }
    }

    /// Every plugin that it names, that of an upgrade included.
    pub fn named_plugins(&self) -> impl Iterator<Item = &PluginHash> {
        let upgrade = self.upgrading.iter().flat_map(|upgrade| [&upgrade.from, &upgrade.to]);
        self.plugins.values().chain(upgrade)
    }

    /// Makes the folder of a new job. A crash leaves all of it or nothing.
    ///
    /// # Errors
    /// If it can't be written.
    pub fn create(&self, folder: &DataFolder) -> Result<(), ServeError> {
        let scratch = folder.scratch(&folder.jobs());
        let write = || {
            create_folder(&scratch)?;
            replace_sealed(&spec_in(&scratch), self)?;
            replace(&job_file_in(&scratch), self.job_toml.as_bytes())?;
            crash::point("serve.job.before");
            rename(&scratch, &folder.job(&self.name))?;
            crash::point("serve.job.after");
            Ok(())
        };
        write().inspect_err(|_| {
            // What is left of it goes when the daemon starts again.
            let _ = std::fs::remove_dir_all(&scratch);
        })
    }

    /// Replaces what the folder says of the job.
    ///
    /// # Errors
    /// If it isn't certain that it is durable.
    pub fn save(&self, folder: &DataFolder) -> Result<(), ServeError> {
        let job = folder.job(&self.name);
        crash::point("serve.spec.before");
        replace_sealed(&spec_in(&job), self)?;
        crash::point("serve.spec.after");
        Ok(())
    }

    /// Replaces the copy of the job file that stands beside it.
    ///
    /// # Errors
    /// If it can't be written; the specification counts all the same.
    pub fn copy_job_file(&self, folder: &DataFolder) -> Result<(), ServeError> {
        replace(&job_file_in(&folder.job(&self.name)), self.job_toml.as_bytes())
    }

    /// Reads what the folder of a job says.
    ///
    /// # Errors
    /// If it is missing, damaged, another job's, or of a newer host.
    pub fn load(folder: &DataFolder, name: &Name) -> Result<JobSpec, ServeError> {
        let path = spec_in(&folder.job(name));
        let spec = read_sealed::<serde_json::Value>(&path)?;
        let spec = spec.ok_or_else(|| damaged(&path, "it is missing".to_owned()))?;
        match spec.get("version").and_then(serde_json::Value::as_u64) {
            Some(version) if version == u64::from(SPEC_VERSION) => {}
            Some(version) => {
                let problem = format!("it has version {version}, and this host reads version {SPEC_VERSION}");
                return Err(damaged(&path, problem));
            }
            None => return Err(damaged(&path, "it has no version".to_owned())),
        }
        let spec: JobSpec = serde_json::from_value(spec).map_err(|error| damaged(&path, error.to_string()))?;
        if spec.name != *name {
            return Err(damaged(&path, format!("it is of the job '{}'", spec.name)));
        }
        Ok(spec)
    }
}

fn damaged(path: &Path, problem: String) -> ServeError {
    ServeError::Damaged { path: path.to_owned(), problem }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::serve::folder::DataLock;

    fn name(name: &str) -> Name {
        Name::new(name).expect("a name")
    }

    fn open(root: &Path) -> DataFolder {
        DataFolder::open(root, &DataLock::take(root).expect("free")).expect("opened")
    }

    fn spec() -> JobSpec {
        let hash = |digit: &str| PluginHash::new(&digit.repeat(64)).expect("a hash");
        let plugins = BTreeMap::from([(name("count"), hash("a"))]);
        let mut spec = JobSpec::new(name("words"), "[job]\nname = 'words'\n".to_owned(), None, plugins, 5);
        spec.upgrading = Some(UpgradingInfo { operator: name("count"), from: hash("a"), to: hash("b") });
        let (causes, help) = (vec!["why".to_owned()], Some("what to do".to_owned()));
        spec.outcome = Some(Outcome::Failed(FailureInfo { error: "it broke".to_owned(), causes, help, at_ms: 7 }));
        spec
    }

    #[test]
    fn a_job_comes_back_as_it_was_written_and_names_all_its_plugins() {
        let data = tempfile::tempdir().expect("a folder");
        let folder = open(data.path());
        let mut spec = spec();
        spec.create(&folder).expect("created");
        assert_eq!(JobSpec::load(&folder, &spec.name).expect("loaded"), spec);
        spec.wanted = Wanted::Stopped;
        spec.job_toml.push('#');
        spec.save(&folder).expect("saved");
        spec.copy_job_file(&folder).expect("copied");
        assert_eq!(JobSpec::load(&folder, &spec.name).expect("loaded"), spec);
        let copy = std::fs::read_to_string(job_file_in(&folder.job(&spec.name))).expect("a copy");
        assert_eq!(copy, spec.job_toml);
        assert_eq!(spec.named_plugins().map(|hash| &hash.as_str()[..1]).collect::<Vec<_>>(), ["a", "a", "b"]);
    }

    proptest! {
        #[test]
        fn bytes_from_outside_are_no_specification_or_one_that_is_written_as_it_was_read(
            changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4)
        ) {
            let data = tempfile::tempdir().expect("a folder");
            let folder = open(data.path());
            spec().create(&folder).expect("created");
            let mut json = serde_json::to_vec(&spec()).expect("JSON");
            for (place, byte) in changes {
                let place = place.index(json.len());
                json[place] = byte;
            }
            // What isn't JSON can't be sealed; that it is noticed is seen elsewhere.
            let Ok(json) = serde_json::from_slice::<serde_json::Value>(&json) else { return Ok(()) };
            replace_sealed(&spec_in(&folder.job(&spec().name)), &json).expect("written");
            if let Ok(read) = JobSpec::load(&folder, &spec().name) {
                read.save(&folder).expect("saved");
                prop_assert_eq!(JobSpec::load(&folder, &read.name).expect("loaded"), read);
            }
        }
    }

    #[test]
    fn what_is_missing_damaged_foreign_or_of_tomorrow_is_refused_by_its_path() {
        let data = tempfile::tempdir().expect("a folder");
        let folder = open(data.path());
        let spec = spec();
        spec.create(&folder).expect("created");
        let path = spec_in(&folder.job(&spec.name));
        let refused = |wanted: &str| {
            let error = JobSpec::load(&folder, &spec.name).expect_err(wanted).to_string();
            assert!(error.contains("words/spec.json") && error.contains(wanted), "{error}");
        };
        replace_sealed(&path, &JobSpec { name: name("others"), ..spec.clone() }).expect("written");
        refused("it is of the job 'others'");
        replace_sealed(&path, &serde_json::json!({ "version": 2 })).expect("written");
        refused("it has version 2");
        replace_sealed(&path, &serde_json::json!({ "version": 1, "name": "../words" })).expect("written");
        refused("is not a usable name");
        std::fs::write(&path, "{}").expect("written");
        refused("is damaged");
        std::fs::remove_file(&path).expect("removed");
        refused("it is missing");
    }
}
