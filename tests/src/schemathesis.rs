//! Runs schemathesis, which makes requests from an OpenAPI document and compares the answers with it.
//!
//! Invariant: a machine without it says `SKIPPED`; one that could have it, in continuous integration, fails.

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use crate::binary::{repository, target_dir};
use crate::skipped;

/// The program, installed if need be; none if this machine can't have it: then says `SKIPPED` with `what`.
///
/// # Panics
/// If it is missing although it could be had: in continuous integration on a Debian machine.
pub fn schemathesis(what: &str) -> Option<PathBuf> {
    let installed = set_up("schemathesis");
    if !installed.status.success() {
        let could_be_had = std::env::var("CI").is_ok_and(|ci| ci == "true") && Path::new("/usr/bin/apt-get").exists();
        let messages = String::from_utf8_lossy(&installed.stderr).into_owned();
        assert!(!could_be_had, "{what} needs schemathesis: {messages}");
        let error = messages.lines().find_map(|line| line.strip_prefix("error: "));
        skipped(what, &format!("{} (.ci/setup.sh schemathesis says more)", error.unwrap_or("no reason was given")));
        return None;
    }
    let path = String::from_utf8(set_up("schemathesis-program").stdout).expect("the script prints UTF-8");
    Some(PathBuf::from(path.trim_end()))
}

fn set_up(part: &str) -> Output {
    // Without a terminal, so that it can't wait for a password.
    let mut command = Command::new("setsid");
    command.arg("--wait").arg(repository().join(".ci/setup.sh")).arg(part).stdin(Stdio::null());
    command.env("CARGO_TARGET_DIR", target_dir()).output().expect("setsid starts")
}
