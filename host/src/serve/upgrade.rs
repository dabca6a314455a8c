//! Another component for an operator of a job: tried on its newest checkpoint, or put in while it runs.
//!
//! An upgrade that is asked of a running job is noted durably before, and what came of it after. A crash in between leaves the note:
//! see [`settle`](super::settle).
//!
//! Invariant: the plugins of a specification without a note are those that the job runs with.

use std::sync::Arc;
use std::time::Duration;

use super::checked::{Checked, parse};
use super::daemon::Daemon;
use super::durable::blocking;
use super::error::ServeError;
use super::info::{UpgradeInfo, UpgradingInfo};
use super::job::JobEntry;
use super::plugin_requests::hash_of;
use super::request::{PROBATION_MS_DEFAULT, PROBATION_MS_MAX, UpgradeSpec};
use super::settle;
use super::spec::JobSpec;
use crate::crash;
use crate::guest::{OperatorFactory, Plugin};
use crate::id::Name;
use crate::runtime::{UpgradeFailed, UpgradeRequest, Upgraded, dry_run};

impl Daemon {
    /// Gives an operator of a running job another component without stopping the stream, and returns when it is adopted. A dry run
    /// only tries it on the newest checkpoint, also of a job that doesn't run.
    ///
    /// # Errors
    /// If there is no such job, operator or plugin; if the component doesn't fit, or failed and the old one is back.
    pub async fn upgrade(&self, name: &str, operator: &str, upgrade: UpgradeSpec) -> Result<UpgradeInfo, ServeError> {
        self.refuse_when_shutting_down()?;
        let entry = self.entry(name)?;
        let job = || entry.name.clone();
        let to = hash_of(&upgrade.plugin)?;
        let probation = probation(upgrade.probation_ms)?;
        let _changing = entry.changing.try_lock().map_err(|_| ServeError::Changing { job: job() })?;
        let spec = settle::before_another(&entry).await?;
        let no_operator = || ServeError::NoOperator {
            job: job(),
            operator: operator.chars().take(80).collect(),
            known: spec.plugins.keys().cloned().collect(),
        };
        let found = spec.plugins.iter().find(|(known, _)| known.as_str() == operator);
        let (operator, from) =
            found.map(|(operator, from)| (operator.clone(), from.clone())).ok_or_else(no_operator)?;
        let file = parse(&self.folder, &spec.job_toml, spec.base_dir.as_deref())?;
        let limits = file.operators.get(&operator).map(|operator| operator.limits).unwrap_or_default();
        let plugin = self.plugins.load(&to, &operator, limits).await?;
        let upgrading = UpgradingInfo { operator, from, to };
        if upgrade.dry_run {
            return self.try_out(&entry, &spec, upgrading, plugin).await;
        }
        if upgrading.from == upgrading.to {
            let UpgradingInfo { operator, to, .. } = upgrading;
            let why = format!("it has the plugin {to} already");
            return Err(ServeError::UpgradeRefused { job: job(), operator, why });
        }
        if entry.handle().is_none() {
            let (status, help) = (entry.status().as_str(), "restart it with a job file that names the new plugin");
            return Err(ServeError::WrongStatus { job: job(), status, help });
        }
        self.put_in(&entry, upgrading, plugin, probation).await
    }

    async fn put_in(
        &self,
        entry: &Arc<JobEntry>,
        upgrading: UpgradingInfo,
        plugin: Arc<Plugin>,
        probation: Duration,
    ) -> Result<UpgradeInfo, ServeError> {
        {
            let _naming = self.naming.lock().await;
            if !self.plugins.has(&upgrading.to) {
                return Err(ServeError::NoPlugin { hash: upgrading.to });
            }
            let (own, note) = (Arc::clone(entry), upgrading.clone());
            blocking(move || own.change(|spec| spec.upgrading = Some(note))).await?;
        }
        crash::point("serve.upgrade.noted");
        let (job, operator) = (entry.name.clone(), upgrading.operator.clone());
        let request = UpgradeRequest { operator: operator.clone(), factory: plugin, probation };
        let outcome = match entry.handle() {
            Some(handle) => handle.upgrade(request).await,
            None => Err(UpgradeFailed::Stopped),
        };
        crash::point("serve.upgrade.answered");
        match &outcome {
            Ok(_) => settle::note(entry, &upgrading, true).await?,
            Err(UpgradeFailed::Refused { .. } | UpgradeFailed::Reverted { .. }) => {
                settle::note(entry, &upgrading, false).await?;
            }
            // Only its checkpoints tell, when nothing of the job runs any more.
            Err(UpgradeFailed::Stopped) => {
                entry.ended().await;
                settle::by_store(&self.plugins, entry).await?;
            }
        }
        match outcome {
            Ok(upgraded) => Ok(put_in(job, upgrading, upgraded)),
            Err(UpgradeFailed::Reverted { why }) => Err(ServeError::UpgradeReverted { job, operator, why }),
            Err(UpgradeFailed::Stopped) => Err(ServeError::UpgradeStopped { job, operator }),
            Err(UpgradeFailed::Refused { why }) => Err(ServeError::UpgradeRefused { job, operator, why }),
        }
    }

    /// Opens the component at the newest checkpoint, and changes nothing.
    async fn try_out(
        &self,
        entry: &JobEntry,
        spec: &JobSpec,
        upgrading: UpgradingInfo,
        plugin: Arc<Plugin>,
    ) -> Result<UpgradeInfo, ServeError> {
        let checked = Checked::of_spec(&self.plugins, spec).await?;
        let UpgradingInfo { operator, from, to } = upgrading;
        let (job, of_operator) = (entry.name.clone(), operator.clone());
        let runtime = tokio::runtime::Handle::current();
        // It opens instances and databases, which may take long.
        let tried = blocking(move || {
            let outcome = runtime.block_on(dry_run(&checked.job(), &of_operator, plugin as Arc<dyn OperatorFactory>));
            outcome.map_err(|error| ServeError::UpgradeRefused {
                job,
                operator: of_operator,
                why: super::error::with_causes(&error),
            })
        });
        let tried = tried.await?;
        let is_migrated =
            |table: &&crate::runtime::DryRunTable| table.from_version.is_some_and(|from| from != table.to_version);
        let migrated_entries = tried.tables.iter().filter(is_migrated).map(|table| table.entries_before).sum();
        Ok(UpgradeInfo {
            job: entry.name.clone(),
            operator,
            from,
            to,
            dry_run: true,
            swapped_at: None,
            adopted_at: None,
            paused_ms: None,
            migrated_entries,
            report: Some(serde_json::to_value(&tried).expect("plain data")),
        })
    }
}

fn probation(given_ms: Option<u64>) -> Result<Duration, ServeError> {
    match given_ms.unwrap_or(PROBATION_MS_DEFAULT) {
        given if given > PROBATION_MS_MAX => Err(ServeError::Probation { given, limit: PROBATION_MS_MAX }),
        given => Ok(Duration::from_millis(given)),
    }
}

fn put_in(job: Name, upgrading: UpgradingInfo, upgraded: Upgraded) -> UpgradeInfo {
    let UpgradingInfo { operator, from, to } = upgrading;
    UpgradeInfo {
        job,
        operator,
        from,
        to,
        dry_run: false,
        swapped_at: Some(upgraded.swapped_at),
        adopted_at: Some(upgraded.adopted_at),
        paused_ms: Some(upgraded.paused.as_secs_f64() * 1e3),
        migrated_entries: upgraded.migrated_entries,
        report: None,
    }
}
