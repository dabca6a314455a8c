//! The daemon answers whatever its own OpenAPI document lets be asked, and much that it doesn't, as the document says, and never with
//! an error of its own.

use std::process::Command;
use std::time::Duration;

use lockgate_tests::{DaemonSetUp, JobFolder, Running, operator, repository, schemathesis};

const TOKEN: &str = "a-secret-of-the-tests-0123456789";
/// Requests for each operation; `tests/campaign.sh api` has more.
const EXAMPLES: &str = "25";
/// A run of that many takes a minute or two on two cores.
const PATIENCE: Duration = Duration::from_secs(900);

#[test]
fn the_daemon_answers_random_requests_as_its_own_document_says() {
    let Some(program) = schemathesis("random requests to the daemon") else { return };
    let folder = JobFolder::new();
    let limits = ["--plugin-max", "1MiB", "--jobs-max", "10", "--plugins-max", "10"];
    let mut daemon = DaemonSetUp::new(folder.path("data")).token(TOKEN).with(&limits).start();
    // Something to ask for.
    daemon.upload(&operator("count"));
    let seconds = std::env::var("LOCKGATE_SCHEMATHESIS_SECONDS").ok();
    let mut command = Command::new(program);
    command.arg("--config-file").arg(repository().join("tests/schemathesis/config.toml")).arg("run");
    command.arg(format!("http://{}/openapi.json", daemon.address())).args([
        "--no-color",
        "--generation-database",
        "none",
    ]);
    command.arg("--header").arg(format!("Authorization: Bearer {TOKEN}"));
    match &seconds {
        Some(seconds) => command.args(["--max-time", seconds]),
        None => command.args(["--max-examples", EXAMPLES, "--seed", "1"]),
    };
    command.current_dir(folder.path(""));
    let longest = seconds.map_or(PATIENCE, |seconds| PATIENCE + Duration::from_secs(seconds.parse().expect("seconds")));
    let finished = Running::start(command).wait_at_most(longest);
    println!("{}", finished.stdout);
    assert!(finished.status.success(), "{}\n{}", finished.stdout, finished.stderr);
    daemon.get("/v1/jobs");
    let messages = daemon.process().stderr();
    assert!(!messages.contains("panicked"), "{messages}");
    daemon.stop();
}
