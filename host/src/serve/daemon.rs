//! The daemon: starts with what its folder has, tells what there is, shuts down.
//!
//! Invariant: one job's trouble is that job's alone: it neither keeps the daemon from starting nor another job from running.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant, SystemTime};

use super::checked::{Checked, JobCheck, Shape, parse};
use super::durable::{blocking, names_in};
use super::error::ServeError;
use super::folder::{DataFolder, DataLock};
use super::info::JobInfo;
use super::job::JobEntry;
use super::plugins::Plugins;
use super::request::DaemonOptions;
use super::run::Wish;
use super::spec::{JobSpec, Wanted};
use super::supervise;
use super::upload::Uploads;
use crate::guest::{Engine, default_cache_dir};
use crate::id::Name;
use crate::telemetry::{Now, prometheus_text_of_all};

/// How often the counters of running jobs are read, for rates.
const SAMPLE_EVERY: Duration = Duration::from_secs(1);

/// Many jobs and their plugins.
pub struct Daemon {
    pub(super) folder: Arc<DataFolder>,
    pub(super) plugins: Arc<Plugins>,
    pub(super) uploads: Uploads,
    pub(super) check: JobCheck,
    jobs: Arc<Mutex<Jobs>>,
    jobs_max: usize,
    /// Held while a job gets plugins, and while one is removed: so none is removed that a job is about to name.
    pub(super) naming: tokio::sync::Mutex<()>,
    shutting_down: AtomicBool,
    /// Let go when nothing of a job runs any more.
    _lock: DataLock,
}

#[derive(Default)]
struct Jobs {
    there: BTreeMap<Name, Arc<JobEntry>>,
    /// Names that requests under way have taken.
    arriving: BTreeSet<Name>,
}

/// A name that a request has taken; let go when it is dropped.
pub(super) struct Arriving<'a> {
    daemon: &'a Daemon,
    name: Name,
}

impl Drop for Arriving<'_> {
    fn drop(&mut self) {
        self.daemon.table().arriving.remove(&self.name);
    }
}

impl Daemon {
    /// Takes the data folder and starts all jobs that are to run. Their folders and inputs aren't looked at before.
    ///
    /// # Errors
    /// If the folder is another daemon's or can't be used, or this machine can't run plugins.
    pub async fn start(options: DaemonOptions) -> Result<Arc<Daemon>, ServeError> {
        Daemon::start_with(options, Arc::new(|_| Ok(()))).await
    }

    /// As [`start`](Self::start); every job that is submitted is looked at with `check`.
    ///
    /// # Errors
    /// As [`start`](Self::start).
    pub async fn start_with(options: DaemonOptions, check: JobCheck) -> Result<Arc<Daemon>, ServeError> {
        let DaemonOptions { data_dir, plugin_bytes_max, plugins_max, jobs_max, compiler } = options;
        let opened = blocking(move || {
            let lock = DataLock::take(&data_dir)?;
            let folder = Arc::new(DataFolder::open(&data_dir, &lock)?);
            let engine = Engine::new(default_cache_dir(), compiler).map_err(|source| ServeError::Plugin { source })?;
            let plugins = Plugins::open(Arc::clone(&folder), Arc::new(engine), plugins_max)?;
            let jobs = find_jobs(&folder)?;
            Ok((lock, folder, Arc::new(plugins), jobs))
        });
        let (lock, folder, plugins, there) = opened.await?;
        let uploads = Uploads::new(Arc::clone(&plugins), plugin_bytes_max);
        let daemon = Arc::new(Daemon {
            folder,
            plugins,
            uploads,
            check,
            jobs: Arc::new(Mutex::new(Jobs { there, arriving: BTreeSet::new() })),
            jobs_max,
            naming: tokio::sync::Mutex::default(),
            shutting_down: AtomicBool::new(false),
            _lock: lock,
        });
        for entry in daemon.entries() {
            if entry.spec().is_ok_and(|spec| spec.wanted == Wanted::Running) && entry.begin().is_ok() {
                tokio::spawn(resume(Arc::clone(&daemon.plugins), entry));
            }
        }
        tokio::spawn(sample(Arc::downgrade(&daemon.jobs)));
        Ok(daemon)
    }

    /// Stops all jobs with a last checkpoint; they go on with the next start. Takes no requests from here on that change
    /// anything. Returns when nothing of them runs any more.
    pub async fn shut_down(&self) {
        self.shutting_down.store(true, Ordering::SeqCst);
        for entry in self.entries() {
            entry.wish(Wish::Stop);
        }
        for entry in self.entries() {
            entry.ended().await;
        }
    }

    /// # Errors
    /// [`ServeError::ShuttingDown`].
    pub(super) fn refuse_when_shutting_down(&self) -> Result<(), ServeError> {
        if self.shutting_down.load(Ordering::SeqCst) { Err(ServeError::ShuttingDown) } else { Ok(()) }
    }

    /// All jobs, in order of their name.
    pub fn jobs(&self) -> Vec<JobInfo> {
        self.entries().iter().map(|entry| entry.info(Instant::now(), SystemTime::now())).collect()
    }

    /// # Errors
    /// If there is no such job.
    pub fn job(&self, name: &str) -> Result<JobInfo, ServeError> {
        Ok(self.entry(name)?.info(Instant::now(), SystemTime::now()))
    }

    /// The metrics of all running jobs, for Prometheus.
    pub fn metrics(&self) -> String {
        let live = self.entries().into_iter().filter(|entry| entry.is_live());
        let live = live.map(|entry| (entry.name.clone(), entry.counters())).collect::<Vec<_>>();
        let jobs = live.iter().map(|(name, counters)| (name, &**counters)).collect::<Vec<_>>();
        prometheus_text_of_all(&jobs, Now { monotonic: Instant::now(), wall: SystemTime::now() })
    }

    /// # Errors
    /// If the text is no name, or there is no such job.
    pub(super) fn entry(&self, name: &str) -> Result<Arc<JobEntry>, ServeError> {
        let given = || name.chars().take(80).collect();
        let job = Name::new(name).map_err(|_| ServeError::BadName { given: given() })?;
        self.table().there.get(&job).cloned().ok_or(ServeError::NoJob { job })
    }

    /// Takes the name of a job that is about to come.
    ///
    /// # Errors
    /// If it is taken, or there are too many jobs.
    pub(super) fn arrive(&self, name: &Name) -> Result<Arriving<'_>, ServeError> {
        let mut table = self.table();
        if table.there.contains_key(name) || table.arriving.contains(name) {
            return Err(ServeError::JobExists { job: name.clone() });
        }
        if table.there.len() + table.arriving.len() >= self.jobs_max {
            return Err(ServeError::TooManyJobs { jobs_max: self.jobs_max });
        }
        table.arriving.insert(name.clone());
        Ok(Arriving { daemon: self, name: name.clone() })
    }

    pub(super) fn arrived(&self, entry: Arc<JobEntry>) {
        self.table().there.insert(entry.name.clone(), entry);
    }

    pub(super) fn gone(&self, name: &Name) {
        self.table().there.remove(name);
    }

    pub(super) fn entries(&self) -> Vec<Arc<JobEntry>> {
        self.table().there.values().cloned().collect()
    }

    fn table(&self) -> MutexGuard<'_, Jobs> {
        lock(&self.jobs)
    }
}

impl Drop for Daemon {
    /// As safe as a crash; jobs go on with the next start. After [`Daemon::shut_down`] there is nothing to end.
    fn drop(&mut self) {
        for entry in self.entries() {
            entry.wish(Wish::Cancel);
        }
        for entry in self.entries() {
            entry.join();
        }
    }
}

fn lock(jobs: &Mutex<Jobs>) -> MutexGuard<'_, Jobs> {
    // Whoever panicked has put in whole entries or none.
    jobs.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The jobs of a data folder. One that can't be read is one of them.
fn find_jobs(folder: &Arc<DataFolder>) -> Result<BTreeMap<Name, Arc<JobEntry>>, ServeError> {
    let mut jobs = BTreeMap::new();
    for name in names_in(&folder.jobs())? {
        match Name::new(&name) {
            Ok(name) if folder.job(&name).is_dir() => {
                let spec = JobSpec::load(folder, &name);
                if let Err(error) = &spec {
                    tracing::error!(job = %name, %error, "the job can't be read");
                }
                let entry = JobEntry::new(Arc::clone(folder), name.clone(), spec);
                // That it can't be read any more is said when it is started.
                let file = entry.spec().and_then(|spec| parse(folder, &spec.job_toml, spec.base_dir.as_deref()));
                if let Ok(file) = file {
                    entry.shaped(Shape::of(&file));
                }
                jobs.insert(name, Arc::new(entry));
            }
            Ok(_) | Err(_) => tracing::warn!(name, "passed over in the folder of jobs: it is none"),
        }
    }
    Ok(jobs)
}

/// Starts a job that was running when the daemon before ended. Its run has begun.
async fn resume(plugins: Arc<Plugins>, entry: Arc<JobEntry>) {
    let checked = async {
        super::settle::by_store(&plugins, &entry).await?;
        Checked::of_spec(&plugins, &entry.spec()?).await
    };
    match checked.await {
        // That it can't is told to the entry.
        Ok(checked) => drop(supervise::start(&entry, checked)),
        Err(error) => entry.cannot_start(&error),
    }
}

/// Reads the counters of running jobs now and then, as long as there is a daemon.
async fn sample(jobs: Weak<Mutex<Jobs>>) {
    let mut ticks = tokio::time::interval(SAMPLE_EVERY);
    loop {
        ticks.tick().await;
        let Some(jobs) = jobs.upgrade() else { return };
        let entries = lock(&jobs).there.values().cloned().collect::<Vec<_>>();
        let now = Instant::now();
        entries.iter().for_each(|entry| entry.sample(now));
    }
}
