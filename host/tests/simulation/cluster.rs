//! What the cluster does by itself or for a process, and what the oracle sees of it.
//!
//! Invariant: a checkpoint is decided at the moment that the cluster accepts the commit, whoever asked for it.

use std::collections::{BTreeMap, BTreeSet};

use lockgate_host::id::Epoch;
use lockgate_host::protocol::decision::DecisionPlace;

use crate::broker::{Decides, Denied, Handle, PARTITIONS};
use crate::channel::Item;
use crate::decision::{Progress, Request};
use crate::oracle::Violation;
use crate::output::is_counted;
use crate::rng::Rng;
use crate::scenario::Scenario;
use crate::world::{Content, Manifest, Row, World};

pub fn place() -> DecisionPlace {
    let [kind, cluster, topic, key] = ["kafka", "cluster-1", "lockgate-job-marker", "job/0"].map(str::to_owned);
    DecisionPlace { kind, cluster, topic, key }
}

impl World {
    /// The checkpoint that was decided last, in truth.
    pub fn decided(&self) -> Option<Epoch> {
        let marked = self.broker.decided.as_ref().and_then(|decides| decides.decided);
        self.decided_by_publish.max(marked.map(|(epoch, _)| epoch))
    }

    /// A commit reaches the cluster.
    pub fn decide(&mut self, handle: Handle, decides: Decides) -> Result<Result<(), Denied>, Violation> {
        let (before, cluster_before) = (self.decided(), self.history.is_some().then(|| self.broker.clone()));
        if let Err(denied) = self.broker.end(handle, Some(decides.clone())) {
            return Ok(Err(denied));
        }
        if let (Some(history), Some(before)) = (&mut self.history, cluster_before) {
            history.push(before);
        }
        let epoch = decides.decided.map(|(epoch, _)| epoch);
        if decides.adopts {
            self.oracle.adopted += 1;
            if epoch != before {
                return Err(Violation(format!("{epoch:?} is adopted when {before:?} was decided last")));
            }
            return Ok(Ok(()));
        }
        self.oracle.decided += 1;
        if decides.follows != before || epoch <= before {
            return Err(Violation(format!("{decides:?} is decided when {before:?} was decided last")));
        }
        let (epoch, digest) = decides.decided.expect("only an adoption has none");
        // A commit that was under way when the store was lost still comes through.
        if !self.has_lost && self.manifests.get(&epoch).is_none_or(|manifest| manifest.digest != digest) {
            return Err(Violation(format!("epoch {epoch} is decided, and its manifest isn't in the store")));
        }
        Ok(Ok(()))
    }

    /// Removes a manifest that will never be decided.
    pub fn withdraw(&mut self, epoch: Epoch) -> Result<(), Violation> {
        if self.decided() >= Some(epoch) {
            return Err(Violation(format!("epoch {epoch} is withdrawn, and it was decided")));
        }
        self.oracle.withdrawn += 1;
        self.manifests.remove(&epoch);
        Ok(())
    }

    /// Something happens in the cluster that no process has to wait for.
    pub fn move_cluster(&mut self, scenario: &Scenario, rng: &mut Rng) -> Result<(), Violation> {
        if scenario.foreign && rng.one_in(12) {
            self.broker.move_foreign(rng);
        }
        if !self.zombies.is_empty() && rng.one_in(10) {
            self.move_zombie(scenario, rng)?;
        }
        if rng.one_in(2) && self.broker.settle_one(rng) {
            self.look(scenario)?;
        }
        Ok(())
    }

    /// A process that is gone gets a request through.
    fn move_zombie(&mut self, scenario: &Scenario, rng: &mut Rng) -> Result<(), Violation> {
        let index = rng.below(self.zombies.len() as u64) as usize;
        let mut zombie = self.zombies.swap_remove(index);
        match zombie.step(self, scenario.mutation)? {
            Progress::Goes if matches!(zombie.next, Request::ReadBack { .. }) => {}
            Progress::Goes => self.zombies.push(zombie),
            Progress::Done => {}
            Progress::Denied => self.oracle.shut_out += 1,
        }
        Ok(())
    }

    /// The coordinator's patience with a transaction is over.
    pub fn time_out(&mut self, rng: &mut Rng) {
        self.oracle.timed_out += u64::from(self.broker.time_out(rng));
    }

    /// A reader reads on, and the oracle looks at what it sees.
    pub fn look(&mut self, scenario: &Scenario) -> Result<(), Violation> {
        let Some(output) = &mut self.oracle.log else { return Ok(()) };
        for partition in 0..PARTITIONS {
            for (row, lane) in self.broker.read_on(partition) {
                output.row_became_visible(row)?;
                // Rows that are dealt to sinks one by one have an order only within one of them, and none when those of
                // several that were in flight are taken up by one.
                let dealt = scenario.shape.sinks > 0;
                if !(dealt && scenario.alignment.overtakes()) {
                    output.check_order(row, dealt.then_some(lane))?;
                }
            }
        }
        if self.broker.is_settled() { self.check_log(scenario) } else { Ok(()) }
    }

    /// All that is decided is visible in the log, and nothing else, and the committed offsets are those of the checkpoint.
    pub fn check_log(&self, scenario: &Scenario) -> Result<(), Violation> {
        let Some(decides) = self.broker.decided.as_ref().filter(|decides| !decides.adopts) else { return Ok(()) };
        let Some(epoch) = self.decided() else { return Ok(()) };
        let Some(manifest) = self.manifests.get(&epoch).filter(|manifest| manifest.decision.is_some()) else {
            return Ok(());
        };
        let of_epoch = |wrong: Violation| Violation(format!("{decides:?}: {}", wrong.0));
        let output = self.oracle.log.as_ref().expect("a job that decides there has an output there");
        output.check_reflects(&self.reflected(manifest, scenario)).map_err(of_epoch)?;
        let positions = manifest.tasks.values().flat_map(|task| task.positions.clone()).collect::<BTreeMap<_, _>>();
        if self.broker.offsets != positions {
            let offsets = &self.broker.offsets;
            return Err(Violation(format!("the offsets are {offsets:?} and those of epoch {epoch} {positions:?}")));
        }
        Ok(())
    }

    /// All that is committed is visible in the files, and nothing else.
    pub fn check_files(&self, epoch: Epoch, scenario: &Scenario) -> Result<(), Violation> {
        let (Some(output), Some(manifest)) = (&self.oracle.files, self.manifests.get(&epoch)) else { return Ok(()) };
        let of_epoch = |wrong: Violation| Violation(format!("epoch {epoch}: {}", wrong.0));
        output.check_reflects(&self.reflected(manifest, scenario)).map_err(of_epoch)
    }

    /// The records whose effect is before a checkpoint: those that were read and aren't in flight.
    fn reflected(&self, manifest: &Manifest, scenario: &Scenario) -> BTreeSet<u64> {
        let mut counted = BTreeSet::new();
        for (split, read) in manifest.tasks.values().flat_map(|task| &task.positions) {
            let read = self.input[*split as usize].iter().take(*read as usize);
            counted.extend(read.filter(|record| is_counted(record, scenario)).map(|record| record.id));
        }
        for name in manifest.tasks.values().filter_map(|task| task.in_flight.as_ref()) {
            let Some(Content::InFlight(channels)) = self.files.get(name).map(|file| &file.content) else { continue };
            for item in channels.iter().flat_map(|channel| &channel.items) {
                if let Item::Record { record, .. } | Item::Row(Row::Counted { record, .. }) = item {
                    counted.remove(&record.id);
                }
            }
        }
        counted
    }
}
