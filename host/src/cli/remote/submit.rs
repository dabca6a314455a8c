//! `lockgate submit`: gives a job to a daemon, with the components that its file names.
//!
//! Invariant: only what stands for a path of a component is changed in the job file's text, so that lines in errors stay right.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde_json::{Value, json};
use toml::Spanned;

use super::jobs::Job;
use super::plugin::{self, Plugin};
use super::working::Working;
use super::{control, read, show};
use crate::cli::CliError;
use crate::cli::client::{Client, ServerArgs};
use crate::config::JobFile;
use crate::id::PluginHash;

/// Give a job to a daemon, which runs it from then on. The components that the job file names by path are sent along; sources
/// and sinks are where the daemon is
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  lockgate submit job.toml
  lockgate submit job.toml --server http://10.0.0.7:8420 --token-file token

Exit codes: 0 the daemon has the job, and starts it; 1 there is one of this name, or no daemon answers; 2 the job file can't be used")]
pub struct SubmitArgs {
    /// The job file
    #[arg(value_name = "JOB.TOML")]
    job_file: PathBuf,
    #[command(flatten)]
    server: ServerArgs,
    /// Print the job as JSON
    #[arg(long)]
    pub json: bool,
}

/// The places of a job file that name components.
#[derive(Deserialize)]
struct Places {
    #[serde(default)]
    operator: BTreeMap<String, Place>,
}

#[derive(Deserialize)]
struct Place {
    wasm: Spanned<String>,
}

/// # Errors
/// If the job file can't be used, or the daemon doesn't take it.
pub fn run(args: &SubmitArgs) -> Result<(), CliError> {
    let client = Client::new(&args.server)?;
    let submission = submission(&client, &args.job_file)?;
    let working = Working::on(&format!("submitting {}", args.job_file.display()));
    let answer = client.post("/v1/jobs", &submission)?;
    drop(working);
    show(&answer, args.json, |job: Job| control::started(&job))
}

/// What is sent of a job file, when its components have been.
///
/// # Errors
/// If it can't be used, or the daemon doesn't take a component.
pub(super) fn submission(client: &Client, job_file: &Path) -> Result<Value, CliError> {
    // Says what is wrong with the file by its own path and lines, before anything is sent.
    JobFile::load(job_file)?;
    let refused = |what: &str, error: &dyn std::error::Error| {
        let refused = CliError::unusable(format!("{what} {}", job_file.display())).caused_by(error);
        refused.help("give the path of a job file that lockgate check accepts")
    };
    let text = std::fs::read_to_string(job_file).map_err(|error| refused("cannot read", &error))?;
    let places = toml::from_str::<Places>(&text).map_err(|error| refused("cannot read", &error))?;
    let folder = std::path::absolute(job_file).map_err(|error| refused("cannot find", &error))?;
    let folder = folder.parent().expect("a file is in a folder").to_owned();
    let mut hashes = BTreeMap::new();
    for place in places.operator.values().filter(|place| !place.wasm.get_ref().starts_with(PluginHash::PREFIX)) {
        let path = place.wasm.get_ref();
        if !hashes.contains_key(path) {
            let plugin: Plugin = read(&plugin::load(client, &folder.join(path))?)?;
            hashes.insert(path.clone(), plugin.hash);
        }
    }
    Ok(json!({ "job_toml": with_hashes(&text, &places, &hashes), "base_dir": folder }))
}

/// The text with a hash instead of each path that has one.
fn with_hashes(text: &str, places: &Places, hashes: &BTreeMap<String, String>) -> String {
    let mut named = places.operator.values().map(|place| &place.wasm).collect::<Vec<_>>();
    named.sort_by_key(|wasm| wasm.span().start);
    let (mut changed, mut from) = (String::with_capacity(text.len()), 0);
    for wasm in named {
        if let Some(hash) = hashes.get(wasm.get_ref()) {
            changed += &text[from..wasm.span().start];
            changed += &format!("\"{}{hash}\"", PluginHash::PREFIX);
            from = wasm.span().end;
        }
    }
    changed + &text[from..]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_of_components_become_hashes_and_all_else_stays() {
        let text = "# é\n[operator.b]\nwasm = 'x.wasm' # one\n[operator.a]\nwasm = \"sha256:cc\"\n\n\
                    [operator]\nc.wasm = \"\"\"\nx.wasm\"\"\"\nd = { wasm = \"y.wasm\", input = \"x.wasm\" }\n";
        let places = toml::from_str::<Places>(text).expect("TOML");
        let hashes = [("x.wasm", "aa"), ("y.wasm", "bb")].map(|(path, hash)| (path.to_owned(), hash.to_owned()));
        let changed = with_hashes(text, &places, &hashes.into());
        let wanted = "# é\n[operator.b]\nwasm = \"sha256:aa\" # one\n[operator.a]\nwasm = \"sha256:cc\"\n\n\
                      [operator]\nc.wasm = \"sha256:aa\"\nd = { wasm = \"sha256:bb\", input = \"x.wasm\" }\n";
        assert_eq!(changed, wanted);
    }
}
