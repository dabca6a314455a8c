//! Many jobs in one process.

use lockgate_tests::{DaemonSetUp, JobFolder, Sent, wait_long_until};
use serde_json::{Value, json};

use crate::support::endless_job;

const JOBS: usize = 40;

fn statuses(list: &Value) -> Vec<&str> {
    let jobs = list["jobs"].as_array().expect("a list").iter();
    jobs.map(|job| job["status"].as_str().expect("a status")).collect()
}

#[test]
fn many_jobs_run_side_by_side_and_all_of_them_survive_a_kill() {
    let folder = JobFolder::new();
    let set_up = DaemonSetUp::new(folder.path("data"));
    let daemon = set_up.start();
    let names = (0..JOBS).map(|number| format!("job-{number:02}")).collect::<Vec<_>>();
    std::thread::scope(|scope| {
        for names in names.chunks(JOBS / 4) {
            let (daemon, folder) = (&daemon, &folder);
            scope
                .spawn(move || names.iter().for_each(|name| drop(daemon.submit(&endless_job(name), &folder.path("")))));
        }
    });
    let all_run = |daemon: &lockgate_tests::Daemon| {
        let list = daemon.get("/v1/jobs");
        let statuses = statuses(&list);
        statuses.len() == JOBS && statuses.iter().all(|status| *status == "running")
    };
    wait_long_until("all jobs to run", || all_run(&daemon));
    daemon.kill();
    let daemon = set_up.start();
    wait_long_until("all jobs to run again", || all_run(&daemon));
    let list = daemon.get("/v1/jobs");
    let found = list["jobs"].as_array().expect("a list").iter().map(|job| job["name"].as_str().expect("a name"));
    assert_eq!(found.collect::<Vec<_>>(), names, "in the order of their names");
    std::thread::scope(|scope| {
        for names in names.chunks(JOBS / 4) {
            let daemon = &daemon;
            scope.spawn(move || {
                for name in names {
                    let path = format!("/v1/jobs/{name}");
                    daemon.done(200, "POST", &format!("{path}/stop"), Sent::Json(&json!({ "mode": "now" })));
                    daemon.done(204, "DELETE", &path, Sent::Nothing);
                }
            });
        }
    });
    assert_eq!(daemon.get("/v1/jobs"), json!({ "jobs": [] }));
    let log = daemon.stop().stderr;
    for name in &names {
        assert!(
            log.contains(&format!("job{{name={name}}}: job started")),
            "{name} didn't start, or isn't named:\n{log}"
        );
    }
    let mut of_jobs = log.lines().filter(|line| line.contains("checkpoint completed"));
    assert!(of_jobs.all(|line| line.contains("job{name=job-")), "it doesn't say of which job a checkpoint is:\n{log}");
}

#[test]
fn of_many_submissions_of_one_name_at_once_one_is_taken() {
    let folder = JobFolder::new();
    let daemon = DaemonSetUp::new(folder.path("data")).start();
    let submission = json!({ "job_toml": endless_job("same") });
    let taken = std::thread::scope(|scope| {
        let ask = || daemon.ask("POST", "/v1/jobs", Sent::Json(&submission)).0;
        let asked = (0..8).map(|_| scope.spawn(ask)).collect::<Vec<_>>();
        asked.into_iter().map(|thread| thread.join().expect("an answer")).collect::<Vec<_>>()
    });
    assert_eq!(taken.iter().filter(|status| **status == 201).count(), 1, "{taken:?}");
    assert!(taken.iter().all(|status| matches!(status, 201 | 409)), "{taken:?}");
    daemon.stop();
}
