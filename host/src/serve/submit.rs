//! New jobs, and jobs that are started again, changed or not.
//!
//! Invariant: a job that is accepted can be started by any later daemon from the data folder alone: its text and its plugins are
//! there before the answer.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::checked::{Checked, Unfit, components, parse};
use super::daemon::Daemon;
use super::durable::{blocking, now_ms};
use super::error::ServeError;
use super::info::JobInfo;
use super::job::JobEntry;
use super::plugins::Added;
use super::request::Submission;
use super::run::Wish;
use super::spec::{JobSpec, Wanted};
use super::supervise;
use crate::config::{Component, JobFile};
use crate::id::{Name, PluginHash};
use crate::runtime::preview;

impl Daemon {
    /// Takes in a job and starts it.
    ///
    /// # Errors
    /// If the job file or a plugin can't be used, the job couldn't continue from what is there, or its name is taken.
    pub async fn submit(&self, submission: Submission) -> Result<JobInfo, ServeError> {
        self.refuse_when_shutting_down()?;
        let Submission { job_toml, base_dir } = submission;
        let file = parse(&self.folder, &job_toml, base_dir.as_deref())?;
        let name = file.job.clone();
        let _arriving = self.arrive(&name)?;
        let checked = self.vetted(file).await?;
        let spec = JobSpec::new(name.clone(), job_toml, base_dir, checked.plugins.clone(), now_ms());
        let entry = {
            let _naming = self.naming.lock().await;
            self.refuse_removed(&checked.plugins)?;
            let folder = Arc::clone(&self.folder);
            let created = blocking(move || {
                spec.create(&folder)?;
                Ok(Arc::new(JobEntry::new(folder, spec.name.clone(), Ok(spec))))
            });
            let entry = created.await?;
            self.arrived(Arc::clone(&entry));
            entry
        };
        self.launch(&entry, checked)?;
        self.job(name.as_str())
    }

    /// Starts a job again, with a changed job file if one is given. One that runs is stopped with a last checkpoint first, when
    /// it is certain that the new one can be started.
    ///
    /// # Errors
    /// As [`submit`](Self::submit); if the job file is another job's; if another request is changing the job.
    pub async fn restart(&self, name: &str, changed: Option<Submission>) -> Result<JobInfo, ServeError> {
        self.refuse_when_shutting_down()?;
        let entry = self.entry(name)?;
        let job = || entry.name.clone();
        let _changing = entry.changing.try_lock().map_err(|_| ServeError::Changing { job: job() })?;
        let (spec, checked) = match changed {
            Some(Submission { job_toml, base_dir }) => {
                let file = parse(&self.folder, &job_toml, base_dir.as_deref())?;
                if file.job != entry.name {
                    return Err(ServeError::OtherName { job: job(), found: file.job });
                }
                let checked = self.vetted(file).await?;
                let submitted_at_ms = entry.spec().map_or_else(|_| now_ms(), |spec| spec.submitted_at_ms);
                (JobSpec::new(job(), job_toml, base_dir, checked.plugins.clone(), submitted_at_ms), checked)
            }
            None => {
                let spec = entry.spec()?;
                let checked = Checked::of_spec(&self.plugins, &spec).await?;
                self.vet(&checked).await?;
                (JobSpec { wanted: Wanted::Running, outcome: None, ..spec }, checked)
            }
        };
        {
            let _naming = self.naming.lock().await;
            self.refuse_removed(&checked.plugins)?;
            let own = Arc::clone(&entry);
            blocking(move || own.replace(spec)).await?;
        }
        entry.wish(Wish::Stop);
        entry.ended().await;
        self.launch(&entry, checked)?;
        self.job(name)
    }

    /// Starts the run of a job that is to run.
    fn launch(&self, entry: &Arc<JobEntry>, checked: Checked) -> Result<(), ServeError> {
        entry.begin()?;
        // It has begun before or after the daemon looked which to stop: in either case it is stopped.
        if self.refuse_when_shutting_down().is_err() {
            entry.wish(Wish::Stop);
        }
        supervise::start(entry, checked)
    }

    /// Takes in the components of a job file and finds out whether the job can run.
    async fn vetted(&self, file: JobFile) -> Result<Checked, ServeError> {
        let mut new = Vec::new();
        let checked = self.take_in_and_vet(file, &mut new).await;
        if checked.is_err() {
            // What only this job would have needed is of no use.
            for hash in new {
                let _ = self.forget_plugin(&hash).await;
            }
        }
        checked
    }

    async fn take_in_and_vet(&self, file: JobFile, new: &mut Vec<PluginHash>) -> Result<Checked, ServeError> {
        let mut plugins = BTreeMap::new();
        for (operator, component) in components(&file) {
            let hash = match component {
                Component::Plugin(hash) => hash.clone(),
                Component::File(path) => {
                    let Added { info, is_new } = self.uploads.take_in(path).await?;
                    if is_new {
                        new.push(info.hash.clone());
                    }
                    info.hash
                }
            };
            plugins.insert(operator.clone(), hash);
        }
        let checked = Checked::new(&self.plugins, file, plugins).await?;
        self.vet(&checked).await?;
        Ok(checked)
    }

    /// Finds out whether a job's folders and inputs can be used, and whether it can continue from its newest checkpoint.
    async fn vet(&self, checked: &Checked) -> Result<(), ServeError> {
        let (check, file) = (Arc::clone(&self.check), checked.file.clone());
        blocking(move || check(&file).map_err(|Unfit { message, help }| ServeError::Unfit { message, help })).await?;
        let job = checked.job();
        let unfit = |source| ServeError::CannotContinue { job: checked.file.job.clone(), source: Box::new(source) };
        preview(&job).await.map_err(unfit)
    }

    /// A plugin may have been removed since it was loaded.
    fn refuse_removed(&self, plugins: &BTreeMap<Name, PluginHash>) -> Result<(), ServeError> {
        match plugins.values().find(|hash| !self.plugins.has(hash)) {
            Some(hash) => Err(ServeError::NoPlugin { hash: hash.clone() }),
            None => Ok(()),
        }
    }
}
