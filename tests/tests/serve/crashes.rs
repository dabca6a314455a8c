//! The daemon is killed at each of its named points; what it has answered stays true, and the rest can be asked again.

use std::path::{Path, PathBuf};

use lockgate_tests::{Daemon, Sent, daemon_crash_points, operator, same_with_other_hash};
use serde_json::{Value, json};

use crate::support::{JOB, ServedWordCount, endless_job};

const TEXT_BYTES: u64 = 300_000;

/// Those of an upgrade that succeeds, which the runtime comes by.
const UPGRADE_POINTS: [&str; 5] =
    ["upgrade.armed", "upgrade.swap.before", "upgrade.swap.after", "upgrade.probation", "upgrade.adopted"];

/// The daemon died before it answered.
struct Died;

/// A daemon that may die at any request, and what it has answered so far.
struct Mortal<'a> {
    served: &'a ServedWordCount,
    daemon: &'a Daemon,
}

impl Mortal<'_> {
    /// Asks; an answer must have one of these statuses.
    fn ask(&self, allowed: &[u16], method: &str, path: &str, sent: Sent<'_>) -> Result<Value, Died> {
        let Ok(answer) = self.daemon.send(method, path, sent) else { return Err(Died) };
        self.daemon.conforms(method, path, &answer);
        assert!(allowed.contains(&answer.status), "{method} {path}: {answer:?}");
        Ok(serde_json::from_str(&answer.body).unwrap_or(Value::Null))
    }

    fn upload(&self, component: &Path) -> Result<String, Died> {
        let bytes = std::fs::read(component).expect("the component is there");
        let sent = Sent::Bytes { kind: "application/wasm", bytes: &bytes };
        let plugin = self.ask(&[200, 201], "POST", "/v1/plugins", sent)?;
        Ok(plugin["hash"].as_str().expect("a hash").to_owned())
    }

    fn job(&self) -> Result<Value, Died> {
        self.ask(&[200], "GET", &format!("/v1/jobs/{JOB}"), Sent::Nothing)
    }

    fn wait(&self, what: &str, condition: impl Fn(&Mortal<'_>) -> Result<bool, Died>) -> Result<(), Died> {
        let mut outcome = Ok(());
        lockgate_tests::wait_long_until(what, || match condition(self) {
            Ok(holds) => holds,
            Err(died) => {
                outcome = Err(died);
                true
            }
        });
        outcome
    }

    fn wait_until_exact(&self) -> Result<(), Died> {
        self.wait("exact output", |mortal| {
            let job = mortal.job()?;
            assert_ne!(job["status"], "failed", "{job}");
            Ok(mortal.served.job.totals().check(&mortal.served.job.output()).is_ok())
        })
    }

    fn delete_savepoints(&self) -> Result<(), Died> {
        let path = format!("/v1/jobs/{JOB}/savepoints");
        let list = self.ask(&[200], "GET", &path, Sent::Nothing)?;
        for savepoint in list["savepoints"].as_array().expect("a list") {
            self.ask(&[204, 404], "DELETE", &format!("{path}/{}", savepoint["epoch"]), Sent::Nothing)?;
        }
        Ok(())
    }

    /// A job that is submitted, stopped and deleted.
    fn come_and_go(&self) -> Result<(), Died> {
        let submission = json!({ "job_toml": endless_job("guest") });
        self.ask(&[201, 409], "POST", "/v1/jobs", Sent::Json(&submission))?;
        self.ask(&[200], "POST", "/v1/jobs/guest/stop", Sent::Json(&json!({ "mode": "now" })))?;
        self.ask(&[204], "DELETE", "/v1/jobs/guest", Sent::Nothing)?;
        Ok(())
    }

    /// All that a daemon does, each step such that it may have been done before.
    fn live(&self, newer: &Path, spare: &Path) -> Result<(), Died> {
        let (split, count) = (self.upload(&operator("split"))?, self.upload(&operator("count"))?);
        let (newer, spare) = (self.upload(newer)?, self.upload(spare)?);
        self.ask(&[204, 404], "DELETE", &format!("/v1/plugins/{spare}"), Sent::Nothing)?;
        let submission =
            json!({ "job_toml": self.served.job_file(&split, &count), "base_dir": self.served.base_dir() });
        self.ask(&[201, 409], "POST", "/v1/jobs", Sent::Json(&submission))?;
        self.come_and_go()?;
        self.wait_until_exact()?;
        self.ask(&[201], "POST", &format!("/v1/jobs/{JOB}/savepoints"), Sent::Nothing)?;
        self.delete_savepoints()?;
        if self.job()?["plugins"]["count"] != newer.as_str() {
            let wish = json!({ "plugin": newer, "probation_ms": 10 });
            let path = format!("/v1/jobs/{JOB}/operators/count/upgrade");
            self.ask(&[200], "POST", &path, Sent::Json(&wish))?;
        }
        self.ask(&[200], "POST", &format!("/v1/jobs/{JOB}/stop"), Sent::Json(&json!({ "mode": "savepoint" })))?;
        self.ask(&[200], "POST", &format!("/v1/jobs/{JOB}/restart"), Sent::Nothing)?;
        self.delete_savepoints()?;
        self.wait_until_exact()
    }
}

/// Kills the daemon at a point, lets another one do all of it, and looks at what is there in the end. Tells whether the point was reached.
fn crash_at(point: &str) -> bool {
    let served = ServedWordCount::new();
    served.job.add_text("a.txt", 1, TEXT_BYTES);
    let folder = &served.job.folder;
    let (newer, spare): (PathBuf, PathBuf) = (folder.path("newer.wasm"), folder.path("spare.wasm"));
    same_with_other_hash(&operator("count"), &newer, "newer");
    same_with_other_hash(&operator("count"), &spare, "spare");
    let reached = match served.set_up.clone().crash_at(point).start_mortal() {
        None => true,
        Some(daemon) => {
            let lived = Mortal { served: &served, daemon: &daemon }.live(&newer, &spare);
            match lived {
                Ok(()) => daemon.kill(),
                Err(Died) => assert!(daemon.wait().was_killed(), "{point}: the daemon ended by itself"),
            }
            lived.is_err()
        }
    };
    served.job.add_text("b.txt", 2, TEXT_BYTES);
    let daemon = served.set_up.start();
    // What a stop has made of the job, if the daemon died behind it.
    let jobs = daemon.get("/v1/jobs")["jobs"].clone();
    let is_stopped = |job: &Value| job["name"] == JOB && job["status"] == "stopped";
    if jobs.as_array().is_some_and(|jobs| jobs.iter().any(is_stopped)) {
        daemon.done(200, "POST", &format!("/v1/jobs/{JOB}/restart"), Sent::Nothing);
    }
    let lived = Mortal { served: &served, daemon: &daemon }.live(&newer, &spare);
    assert!(lived.is_ok(), "{point}: nobody kills this one");
    served.job.assert_exact();
    let plugins = daemon.get("/v1/plugins")["plugins"].clone();
    assert_eq!(plugins.as_array().map(Vec::len), Some(3), "{point}: {plugins}");
    daemon.done(200, "POST", &format!("/v1/jobs/{JOB}/stop"), Sent::Nothing);
    daemon.done(204, "DELETE", &format!("/v1/jobs/{JOB}"), Sent::Nothing);
    daemon.stop();
    let left = |name: &str| std::fs::read_dir(folder.path("data").join(name)).expect("a folder").count();
    assert_eq!((left("plugins"), left("jobs")), (plugins_files(folder.path("data/plugins").as_path()), 0), "{point}");
    reached
}

/// How many of the files are plugins and what is known of them; anything else is a leftover.
fn plugins_files(folder: &Path) -> usize {
    let entries = std::fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("an entry").file_name());
    entries.filter(|name| name.to_str().is_some_and(|name| name.len() > 64 && !name.starts_with('.'))).count()
}

#[test]
fn wherever_the_daemon_dies_what_it_has_answered_stays_and_the_output_is_exact() {
    let points = daemon_crash_points();
    assert!(!points.is_empty(), "the daemon has crash points");
    for point in points.into_iter().chain(UPGRADE_POINTS.map(str::to_owned)) {
        assert!(crash_at(&point), "no daemon ever comes by the crash point {point}");
    }
}
