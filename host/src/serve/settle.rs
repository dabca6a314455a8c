//! What became of an upgrade that was under way when the daemon, or the job, ended.
//!
//! The checkpoint that the job goes on from names the component that has taken it, and with that one the job goes on, since nobody
//! else can read its state for certain. Where no sink decides, that is the newest checkpoint. Where one does, the store may not know
//! whether the newest was decided: then the job is run with both components at hand, and its recovery finds out.
//!
//! Invariant: the note of an upgrade goes only with the certainty of what became of it.

use std::path::Path;
use std::sync::Arc;

use super::checked::parse;
use super::durable::blocking;
use super::error::ServeError;
use super::info::UpgradingInfo;
use super::job::JobEntry;
use super::plugins::Plugins;
use super::spec::JobSpec;
use crate::id::{Name, PluginHash};
use crate::protocol::upgrade::{InForce, Stored, in_force_by_store};
use crate::runtime::{Components, JobHandle};
use crate::store::{CheckpointStore, StoreError};

/// One process runs a whole job.
const SLOT: u32 = 0;

/// Finds out from the checkpoints of a job that doesn't run, and notes it. If they can't tell, the note stays, and the next run
/// of the job tells.
///
/// # Errors
/// If its store can't be read, or the outcome not be written.
pub async fn by_store(plugins: &Arc<Plugins>, entry: &Arc<JobEntry>) -> Result<(), ServeError> {
    let spec = entry.spec()?;
    let Some(upgrading) = spec.upgrading.clone() else { return Ok(()) };
    let file = parse(plugins.folder(), &spec.job_toml, spec.base_dir.as_deref())?;
    match told(&file.checkpoint.store, &entry.name, &upgrading).await? {
        Some(InForce::New) => note(entry, &upgrading, true).await,
        Some(InForce::Old) => note(entry, &upgrading, false).await,
        None => {
            let UpgradingInfo { operator, .. } = &upgrading;
            tracing::info!(job = %entry.name, %operator, "what became of an upgrade is known when the job has recovered");
            Ok(())
        }
    }
}

/// What the store alone tells.
async fn told(store: &Path, job: &Name, upgrading: &UpgradingInfo) -> Result<Option<InForce>, ServeError> {
    let UpgradingInfo { operator, to, .. } = upgrading;
    let store = match CheckpointStore::open_existing(store, job, SLOT).await {
        Err(StoreError::NoJob { .. }) => return Ok(in_force_by_store(to.as_str(), [])),
        opened => opened?,
    };
    let noted = store.noted_decided().await?;
    let mut newest_first = Vec::new();
    for epoch in store.epochs().await?.into_iter().rev() {
        let manifest = store.inspect(epoch).await?;
        let is_decided = manifest.decision.is_none() || Some(epoch) <= noted;
        newest_first.push((manifest.component(operator).map(str::to_owned), is_decided));
        if is_decided {
            break;
        }
    }
    let stored = newest_first.iter();
    let stored =
        stored.map(|(component, is_decided)| Stored { component: component.as_deref(), is_decided: *is_decided });
    Ok(in_force_by_store(to.as_str(), stored))
}

/// Notes what a run has found out, when it has. `upgrading`: what was noted before it began.
pub async fn by_run(entry: &Arc<JobEntry>, upgrading: Option<UpgradingInfo>, handle: &JobHandle) {
    let Some(upgrading) = upgrading else { return };
    let Some(components) = handle.recovered().await else { return };
    // No other upgrade begins meanwhile, nor ends.
    let _changing = entry.changing.lock().await;
    if let Err(error) = note(entry, &upgrading, has_taken(&components, &upgrading)).await {
        tracing::warn!(job = %entry.name, %error, "what became of an upgrade can't be written down; the next start finds it out");
    }
}

/// What a job is, of which no earlier upgrade is open any more, or that doesn't run.
///
/// # Errors
/// If its run hasn't found out yet what became of one; if there is no such job, or the outcome can't be written.
pub async fn before_another(entry: &Arc<JobEntry>) -> Result<JobSpec, ServeError> {
    let spec = entry.spec()?;
    let (Some(upgrading), Some(handle)) = (&spec.upgrading, entry.handle()) else { return Ok(spec) };
    let open = || ServeError::UpgradeOpen { job: entry.name.clone(), operator: upgrading.operator.clone() };
    let components = handle.components().ok_or_else(open)?;
    note(entry, upgrading, has_taken(&components, upgrading)).await?;
    entry.spec()
}

fn has_taken(components: &Components, upgrading: &UpgradingInfo) -> bool {
    components.get(&upgrading.operator).is_some_and(|component| component == upgrading.to.as_str())
}

/// Notes what became of an upgrade, unless that was noted already.
///
/// # Errors
/// If it can't be written.
pub async fn note(entry: &Arc<JobEntry>, upgrading: &UpgradingInfo, adopted: bool) -> Result<(), ServeError> {
    tracing::info!(job = %entry.name, operator = %upgrading.operator, adopted, "an upgrade is over");
    let (own, upgrading) = (Arc::clone(entry), upgrading.clone());
    blocking(move || own.change(|spec| settled(spec, &upgrading, adopted))).await
}

fn settled(spec: &mut JobSpec, upgrading: &UpgradingInfo, adopted: bool) {
    // Another one may have been noted since, or a job file that names its plugins.
    if spec.upgrading.as_ref() != Some(upgrading) {
        return;
    }
    spec.upgrading = None;
    if adopted {
        let (operator, to): (Name, PluginHash) = (upgrading.operator.clone(), upgrading.to.clone());
        spec.plugins.insert(operator, to);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::{Attempt, Epoch};
    use crate::store::Manifest;
    use crate::store::sample::{checkpoint, manifest_decided_elsewhere, name, store};

    fn hash(digit: &str) -> PluginHash {
        PluginHash::new(&digit.repeat(64)).expect("a hash")
    }

    /// Publishes a checkpoint whose operator has had this component, to be decided by a sink.
    async fn publish(store: &CheckpointStore, epoch: u64, component: &str) {
        let mut manifest = Manifest {
            decision: manifest_decided_elsewhere(Epoch(epoch)).decision,
            ..checkpoint(store, epoch, Attempt(1), &[])
        };
        let operator = manifest.operators.get_mut(&name("count")).expect("the sample has it");
        operator.component = Some(hash(component).as_str().to_owned());
        let _receipt = store.publish(&manifest).await.expect("published");
    }

    #[tokio::test]
    async fn a_checkpoint_that_may_not_have_been_decided_tells_nothing_until_that_is_noted() {
        let (folder, store) = store().await;
        let upgrading = UpgradingInfo { operator: name("count"), from: hash("a"), to: hash("b") };
        let told = async || told(folder.path(), &name("word-count"), &upgrading).await.expect("read");
        publish(&store, 1, "a").await;
        assert_eq!(told().await, Some(InForce::Old), "it may begin again, which is the old one as well");
        store.note_decided(Epoch(1)).await.expect("noted");
        publish(&store, 2, "b").await;
        assert_eq!(told().await, None, "it may be withdrawn");
        store.note_decided(Epoch(2)).await.expect("noted");
        assert_eq!(told().await, Some(InForce::New));
        publish(&store, 3, "b").await;
        assert_eq!(told().await, Some(InForce::New), "either way");
    }
}
