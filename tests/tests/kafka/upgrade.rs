//! A daemon that dies in the middle of an upgrade of a job whose sink decides: the job goes on with the component of the checkpoint
//! that was decided, whichever is the newest.

use lockgate_tests::kafka::{Broker, Client};
use lockgate_tests::{
    Daemon, DaemonSetUp, KafkaJob, Sent, assert_exactly_once, numbered, operator, same_with_other_hash, wait_long_until,
};
use serde_json::{Value, json};

use crate::brokers::shared;

/// So many records before the upgrade, and as many after.
const RECORDS: u64 = 1_000;

/// The job of a daemon whose upgrade was interrupted.
struct Interrupted {
    job: KafkaJob,
    set_up: DaemonSetUp,
    from: String,
    to: String,
}

impl Interrupted {
    /// Lets a daemon die at this point of the checkpoint that is the new component's first.
    fn at(point: &str, broker: &Broker, client: &Client) -> Interrupted {
        // No checkpoint but those of the upgrade.
        let job = KafkaJob::copy("upgrade", broker.address()).with("checkpoint", "interval", "'2m'");
        job.create_topics(client, 1);
        client.produce(&job.input(), &numbered(0..RECORDS));
        let newer = job.folder.path("newer.wasm");
        same_with_other_hash(&operator("identity"), &newer, "newer");
        let set_up = DaemonSetUp::new(job.folder.path("data"));
        let daemon = set_up.clone().crash_at(&format!("{point}:2")).start();
        let (from, to) = (daemon.upload(&operator("identity")), daemon.upload(&newer));
        daemon.submit(&job.job_file(), &job.folder.path(""));
        wait_until_read(&daemon, &job);
        let wish = json!({ "plugin": to, "probation_ms": 0 });
        let path = format!("/v1/jobs/{}/operators/op/upgrade", job.name());
        daemon.send("POST", &path, Sent::Json(&wish)).expect_err("it dies before it answers");
        assert!(daemon.wait().was_killed(), "{point} is reached twice");
        assert_eq!(job.newest_epoch(), 2, "the new component's checkpoint is published");
        Interrupted { job, set_up, from, to }
    }

    /// Starts a daemon that goes on; `expected` is the plugin that the job must have.
    fn goes_on_with(&self, expected: &str, client: &Client) {
        let (job, name) = (&self.job, self.job.name());
        let daemon = self.set_up.start();
        let mut told = Value::Null;
        wait_long_until("what became of the upgrade", || {
            told = daemon.job(name);
            told["upgrading"].is_null()
        });
        assert_eq!(told["plugins"]["op"], expected, "{told}");
        client.produce(&job.input(), &numbered(RECORDS..2 * RECORDS));
        daemon.wait_for_status(name, "running");
        wait_long_until("all of the input", || {
            daemon.done(201, "POST", &format!("/v1/jobs/{name}/savepoints"), Sent::Nothing);
            job.has_caught_up(client, &job.input())
        });
        // It can be done again, or back.
        let other = if expected == self.from { &self.to } else { &self.from };
        let wish = json!({ "plugin": other, "probation_ms": 0 });
        let upgraded = daemon.done(200, "POST", &format!("/v1/jobs/{name}/operators/op/upgrade"), Sent::Json(&wish));
        assert_eq!((&upgraded["from"], &upgraded["to"]), (&expected.into(), &other.as_str().into()), "{upgraded}");
        daemon.stop();
        assert_exactly_once(2 * RECORDS, &client.read(&job.output(), true));
    }
}

fn wait_until_read(daemon: &Daemon, job: &KafkaJob) {
    wait_long_until("the records are read", || daemon.job(job.name())["parts"]["in"]["records_out"] == RECORDS);
}

#[test]
fn a_component_whose_checkpoint_was_published_and_not_decided_is_not_in_force() {
    let Some((broker, client)) = shared("upgrades that die before the decision") else { return };
    let interrupted = Interrupted::at("runtime.published", broker, &client);
    interrupted.goes_on_with(&interrupted.from, &client);
}

#[test]
fn a_component_whose_checkpoint_was_decided_is_in_force_though_nobody_has_noted_it() {
    let Some((broker, client)) = shared("upgrades that die behind the decision") else { return };
    let interrupted = Interrupted::at("store.note-decided.before", broker, &client);
    interrupted.goes_on_with(&interrupted.to, &client);
}
