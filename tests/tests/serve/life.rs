//! Plugins and jobs from the first request to the last.

use lockgate_tests::{DaemonSetUp, JobFolder, Metrics, Sent, WordTotals, faulty, operator, same_with_other_hash};
use serde_json::json;

use crate::support::{JOB, ServedWordCount, endless_job};

#[test]
fn a_job_lives_from_its_submission_to_its_deletion_over_http() {
    let served = ServedWordCount::new();
    served.job.add_text("a.txt", 1, 300_000);
    let daemon = served.set_up.start();
    assert_eq!(daemon.get("/v1/jobs"), json!({ "jobs": [] }));
    let (split, count) = served.submit(&daemon);
    served.wait_until_exact();
    let job = daemon.wait_for_status(JOB, "running");
    assert_eq!(job["plugins"], json!({ "split": split, "count": count }));
    assert_eq!(job["parts"]["count"]["kind"], "operator");
    assert_eq!(job["parts"]["text"]["parallelism"], 2);
    daemon.refused(409, "POST", "/v1/jobs", Sent::Json(&json!({ "job_toml": endless_job(JOB) })), &[JOB]);
    let plugin = format!("/v1/plugins/{count}");
    assert_eq!(daemon.get(&plugin)["used_by"], json!([JOB]));
    daemon.refused(409, "DELETE", &plugin, Sent::Nothing, &[&count, JOB]);
    let path = format!("/v1/jobs/{JOB}");
    daemon.refused(409, "DELETE", &path, Sent::Nothing, &[JOB]);

    let kept = daemon.done(201, "POST", &format!("{path}/savepoints"), Sent::Nothing);
    assert_eq!(kept["kept"], true);
    served.job.add_text("b.txt", 2, 300_000);
    served.wait_until_exact();
    let stopped = daemon.done(200, "POST", &format!("{path}/stop"), Sent::Json(&json!({ "mode": "savepoint" })));
    assert_eq!(stopped["status"], "stopped");
    let again = daemon.done(200, "POST", &format!("{path}/stop"), Sent::Nothing);
    assert_eq!(again["status"], "stopped", "it stays as it is");
    let savepoints = daemon.get(&format!("{path}/savepoints"))["savepoints"].clone();
    let savepoints = savepoints.as_array().expect("a list");
    assert_eq!(savepoints.len(), 2, "{savepoints:?}");
    assert_eq!(savepoints[0]["epoch"], kept["epoch"], "many checkpoints later it is still there");
    served.job.add_text("c.txt", 3, 300_000);
    daemon.done(200, "POST", &format!("{path}/restart"), Sent::Nothing);
    served.wait_until_exact();
    daemon.done(200, "POST", &format!("{path}/stop"), Sent::Nothing);

    daemon.refused(409, "DELETE", &path, Sent::Nothing, &["savepoint"]);
    for savepoint in savepoints {
        let path = format!("{path}/savepoints/{}", savepoint["epoch"]);
        assert_eq!(daemon.get(&path)["epoch"], savepoint["epoch"]);
        daemon.done(204, "DELETE", &path, Sent::Nothing);
        daemon.refused(404, "GET", &path, Sent::Nothing, &["savepoint"]);
        daemon.refused(404, "DELETE", &path, Sent::Nothing, &["savepoint"]);
    }
    daemon.done(204, "DELETE", &path, Sent::Nothing);
    daemon.refused(404, "GET", &path, Sent::Nothing, &[JOB]);
    daemon.done(204, "DELETE", &plugin, Sent::Nothing);
    daemon.refused(404, "GET", &plugin, Sent::Nothing, &[&count]);
    served.job.assert_exact();
    daemon.stop();
}

#[test]
fn the_same_component_is_one_plugin_however_often_it_is_uploaded() {
    let folder = JobFolder::new();
    let daemon = DaemonSetUp::new(folder.path("data")).start();
    let component = std::fs::read(operator("count")).expect("a component");
    let sent = Sent::Bytes { kind: "application/octet-stream", bytes: &component };
    let first = daemon.done(201, "POST", "/v1/plugins", sent);
    assert_eq!(first["operator"]["tables"], json!([{ "name": "counts", "kind": "value", "version": 1 }]));
    assert_eq!(first["size_bytes"], component.len());
    let second = daemon.done(200, "POST", "/v1/plugins", sent);
    assert_eq!(first["hash"], second["hash"]);
    assert_eq!(daemon.get("/v1/plugins")["plugins"].as_array().map(Vec::len), Some(1));
    daemon.stop();
}

#[test]
fn a_component_at_a_path_is_that_of_the_submission_whatever_becomes_of_the_file() {
    let served = ServedWordCount::new();
    served.job.add_text("a.txt", 1, 200_000);
    let count = served.job.folder.path("count.wasm");
    std::fs::copy(operator("count"), &count).expect("a copy");
    let job_file = served.job.job_file().replace(&operator("count").display().to_string(), "count.wasm");
    let daemon = served.set_up.start();
    daemon.submit(&job_file, &served.base_dir());
    served.wait_until_exact();
    std::fs::write(&count, "something else").expect("a writable file");
    daemon.kill();
    let daemon = served.set_up.start();
    served.job.add_text("b.txt", 2, 200_000);
    served.wait_until_exact();
    daemon.stop();
}

#[test]
fn a_job_that_fails_says_why_and_others_run_on() {
    let served = ServedWordCount::new();
    let daemon = served.set_up.start();
    served.submit(&daemon);
    let folder = &served.job.folder;
    folder.write("bad/a.txt", "good\npanic\n");
    let bad = format!(
        "[job]\nname = \"bad\"\n[restart]\nstrategy = \"none\"\n[source.text]\ntype = \"file\"\npath = \"bad\"\n\
         [operator.picky]\nwasm = \"{}\"\ninput = \"text\"\n[sink.out]\ntype = \"null\"\ninput = \"picky\"\n",
        faulty().display()
    );
    daemon.submit(&bad, &served.base_dir());
    let failed = daemon.wait_for_status("bad", "failed");
    assert!(failed["failure"].to_string().contains("picky"), "{failed}");
    assert_eq!(failed["resumes"], false);
    served.job.add_text("a.txt", 1, 200_000);
    served.wait_until_exact();
    assert_eq!(daemon.job(JOB)["status"], "running");
    daemon.stop();
}

#[test]
fn a_job_whose_input_ends_has_ended_and_all_of_its_output_is_there() {
    let served = ServedWordCount::new();
    served.job.add_text("a.txt", 1, 200_000);
    let daemon = served.set_up.start();
    let job_file = served.job.job_file().replace("\"continuous\"", "\"bounded\"");
    daemon.submit(&job_file, &served.base_dir());
    daemon.wait_for_status(JOB, "ended");
    served.job.assert_exact();
    daemon.done(200, "POST", &format!("/v1/jobs/{JOB}/restart"), Sent::Nothing);
    daemon.wait_for_status(JOB, "ended");
    daemon.stop();
}

#[test]
fn jobs_that_ran_go_on_when_the_daemon_starts_again_and_stopped_ones_stay_stopped() {
    let served = ServedWordCount::new();
    served.job.add_text("a.txt", 1, 200_000);
    let daemon = served.set_up.start();
    served.submit(&daemon);
    daemon.submit(&endless_job("sleeper"), &served.base_dir());
    daemon.wait_for_status("sleeper", "running");
    daemon.done(200, "POST", "/v1/jobs/sleeper/stop", Sent::Json(&json!({ "mode": "now" })));
    served.wait_until_exact();
    daemon.stop();
    served.job.add_text("b.txt", 2, 200_000);
    let daemon = served.set_up.start();
    served.wait_until_exact();
    assert_eq!(daemon.job("sleeper")["status"], "stopped");
    daemon.stop();
}

#[test]
fn a_restart_may_change_the_job_file_but_not_into_another_job() {
    let served = ServedWordCount::new();
    served.job.add_text("a.txt", 1, 200_000);
    let daemon = served.set_up.start();
    let (split, count) = served.submit(&daemon);
    served.wait_until_exact();
    let path = format!("/v1/jobs/{JOB}");
    let restart = format!("{path}/restart");
    let other = json!({ "job_toml": endless_job("other") });
    daemon.refused(422, "POST", &restart, Sent::Json(&other), &["other", JOB]);
    daemon.refused(422, "POST", &restart, Sent::Json(&json!({ "base_dir": "/" })), &["job_toml"]);
    let wider = served.job_file(&split, &count).replace("parallelism = 2", "parallelism = 3");
    let changed = json!({ "job_toml": wider, "base_dir": served.base_dir() });
    let job = daemon.done(200, "POST", &restart, Sent::Json(&changed));
    assert_eq!(job["parts"]["count"]["parallelism"], 3);
    served.job.add_text("b.txt", 2, 200_000);
    served.wait_until_exact();
    daemon.stop();
}

#[test]
fn an_operator_is_upgraded_while_its_job_runs_and_nothing_is_lost_or_doubled() {
    let served = ServedWordCount::new();
    served.job.add_text("a.txt", 1, 200_000);
    let newer = served.job.folder.path("newer.wasm");
    same_with_other_hash(&operator("count"), &newer, "newer");
    let daemon = served.set_up.start();
    let (split, count) = served.submit(&daemon);
    let newer = daemon.upload(&newer);
    served.wait_until_exact();
    let path = format!("/v1/jobs/{JOB}/operators/count/upgrade");
    let tried = json!({ "plugin": newer, "dry_run": true });
    let tried = daemon.done(200, "POST", &path, Sent::Json(&tried));
    assert_eq!((&tried["dry_run"], &tried["to"]), (&json!(true), &json!(newer)));
    assert_eq!(daemon.job(JOB)["plugins"]["count"], count, "nothing was changed");
    served.job.add_text("b.txt", 2, 2_000_000);
    let wish = json!({ "plugin": newer, "probation_ms": 50 });
    let upgraded = daemon.done(200, "POST", &path, Sent::Json(&wish));
    assert_eq!((&upgraded["from"], &upgraded["to"]), (&json!(count), &json!(newer)));
    assert!(upgraded["adopted_at"].as_u64() > upgraded["swapped_at"].as_u64(), "{upgraded}");
    served.wait_until_exact();
    assert_eq!(daemon.job(JOB)["plugins"], json!({ "split": split, "count": newer }));
    daemon.done(204, "DELETE", &format!("/v1/plugins/{count}"), Sent::Nothing);
    let other = json!({ "plugin": split, "probation_ms": 50 });
    daemon.refused(409, "POST", &path, Sent::Json(&other), &["count", JOB]);
    daemon.refused(404, "POST", &path.replace("count", "other"), Sent::Json(&wish), &["other"]);
    daemon.kill();
    let daemon = served.set_up.start();
    served.job.add_text("c.txt", 3, 200_000);
    served.wait_until_exact();
    assert_eq!(daemon.job(JOB)["plugins"]["count"], newer);
    daemon.stop();
}

#[test]
fn metrics_are_of_all_jobs_and_the_page_names_them() {
    let served = ServedWordCount::new();
    served.job.folder.write("input/a.txt", "one two two\n");
    let daemon = served.set_up.start();
    served.submit(&daemon);
    daemon.submit(&endless_job("numbers"), &served.base_dir());
    served.wait_until_exact();
    daemon.wait_for_status("numbers", "running");
    let answer = daemon.send("GET", "/metrics", Sent::Nothing).expect("an answer");
    daemon.conforms("GET", "/metrics", &answer);
    assert_eq!(answer.headers["content-type"], "text/plain; version=0.0.4; charset=utf-8");
    let metrics = Metrics::parse(&answer.body).unwrap_or_else(|wrong| panic!("{wrong}\n{}", answer.body));
    assert_eq!(metrics.sum("lockgate_records_in_total", ("operator", "count")), 3.0);
    assert!(metrics.get("lockgate_restarts_total", &[("job", "numbers")]).is_some());
    let page = daemon.send("GET", "/", Sent::Nothing).expect("an answer");
    assert_eq!((page.status, page.headers["content-type"].as_str()), (200, "text/html; charset=utf-8"));
    assert!(page.headers["content-security-policy"].contains("default-src 'none'"));
    for text in [JOB, "numbers", "running", "split", "count"] {
        assert!(page.body.contains(text), "{text} isn't on the page:\n{}", page.body);
    }
    assert!(!page.body.contains("<script"), "{}", page.body);
    assert_eq!(WordTotals::of_folder(&served.job.input()).expect("input").words(), 3);
    daemon.stop();
}
