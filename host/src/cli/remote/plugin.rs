//! `lockgate plugin`: the components that a daemon has.
//!
//! Invariant: a component that the daemon has already isn't sent again.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::show;
use super::table::{Side, Table};
use super::working::Working;
use crate::cli::CliError;
use crate::cli::checkpoint::size;
use crate::cli::client::{Client, ServerArgs};
use crate::id::PluginHash;

/// What is read of a file at a time.
const PIECE_BYTES: usize = 64 << 10;

/// Load, list or remove the components of a daemon
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  lockgate plugin load my-op/my_op.wasm
  lockgate plugin list
  lockgate plugin remove 3fa4…            all 64 digits, as plugin list prints them

A job file names a loaded plugin as wasm = \"sha256:3fa4…\". `lockgate submit` loads those that a job file names by path.

Exit codes: 0 done; 1 a job uses it, or no daemon answers; 2 it is no operator, or there is no such plugin")]
pub struct Args {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, clap::Subcommand)]
enum Verb {
    /// Send a component to the daemon, which checks and compiles it
    Load(LoadArgs),
    /// Show all that there are
    List(ListArgs),
    /// Remove one that no job uses
    Remove(RemoveArgs),
}

#[derive(Debug, clap::Args)]
struct LoadArgs {
    /// The component
    #[arg(value_name = "FILE.WASM")]
    file: PathBuf,
    #[command(flatten)]
    server: ServerArgs,
    /// Print the plugin as JSON
    #[arg(long)]
    json: bool,
}

#[derive(Debug, clap::Args)]
struct ListArgs {
    #[command(flatten)]
    server: ServerArgs,
    /// Print them as JSON
    #[arg(long)]
    json: bool,
}

#[derive(Debug, clap::Args)]
struct RemoveArgs {
    /// The plugin's hash, with or without `sha256:`
    hash: String,
    #[command(flatten)]
    server: ServerArgs,
    /// Print what was removed as JSON
    #[arg(long)]
    json: bool,
}

#[derive(Deserialize)]
struct Plugins {
    plugins: Vec<Plugin>,
}

#[derive(Deserialize)]
pub(super) struct Plugin {
    pub hash: String,
    size_bytes: u64,
    operator: Option<Facts>,
    problem: Option<String>,
    used_by: Vec<String>,
}

#[derive(Deserialize)]
struct Facts {
    name: String,
    version: String,
}

impl Args {
    pub fn json(&self) -> bool {
        match &self.verb {
            Verb::Load(LoadArgs { json, .. }) | Verb::List(ListArgs { json, .. }) => *json,
            Verb::Remove(RemoveArgs { json, .. }) => *json,
        }
    }
}

/// # Errors
/// If the daemon doesn't do it.
pub fn run(args: &Args) -> Result<(), CliError> {
    match &args.verb {
        Verb::Load(LoadArgs { file, server, json }) => {
            let answer = load(&Client::new(server)?, file)?;
            show(&answer, *json, |plugin: Plugin| {
                format!("{}: use it in a job file as wasm = \"{}{}\"\n", plugin.name(), PluginHash::PREFIX, plugin.hash)
            })
        }
        Verb::List(ListArgs { server, json }) => {
            let answer = Client::new(server)?.get("/v1/plugins")?;
            show(&answer, *json, |Plugins { plugins }| text(&plugins))
        }
        Verb::Remove(RemoveArgs { hash, server, json }) => {
            let digits = hash.strip_prefix(PluginHash::PREFIX).unwrap_or(hash);
            let hash = PluginHash::new(digits)
                .map_err(|error| CliError::unusable(error.to_string()).help("lockgate plugin list shows the hashes"))?;
            Client::new(server)?.delete(&format!("/v1/plugins/{hash}"))?;
            show(&json!({ "removed": hash }), *json, |_: Value| format!("{hash}: removed\n"))
        }
    }
}

/// Sees to it that the daemon has the component; gives what it says of it.
///
/// # Errors
/// If the file can't be read, or the daemon doesn't take it.
pub(super) fn load(client: &Client, file: &Path) -> Result<Value, CliError> {
    let (hash, bytes) = digest(file)?;
    if let Some(known) = client.get_if_there(&format!("/v1/plugins/{hash}"))? {
        return Ok(known);
    }
    let working = Working::sending(&format!("sending {}", file.display()), bytes);
    client.upload("/v1/plugins", file, &mut |bytes| working.sent(bytes))
}

fn digest(file: &Path) -> Result<(PluginHash, u64), CliError> {
    let read = File::open(file).and_then(|mut opened| {
        let (mut digest, mut bytes, mut piece) = (Sha256::new(), 0, vec![0; PIECE_BYTES]);
        loop {
            match opened.read(&mut piece)? {
                0 => return Ok((digest.finalize(), bytes)),
                read => {
                    digest.update(&piece[..read]);
                    bytes += read as u64;
                }
            }
        }
    });
    let (digest, bytes) = read.map_err(|error| {
        let refused = CliError::unusable(format!("cannot read {}", file.display())).caused_by(&error);
        refused.help("give the path of a component, such as lockgate build makes")
    })?;
    let digits = digest.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    Ok((PluginHash::new(&digits).expect("a digest has its digits"), bytes))
}

impl Plugin {
    fn name(&self) -> String {
        match (&self.operator, &self.problem) {
            (Some(facts), _) => format!("{} {}", facts.name, facts.version),
            (None, Some(problem)) => format!("unusable: {problem}"),
            (None, None) => "unusable".to_owned(),
        }
    }
}

fn text(plugins: &[Plugin]) -> String {
    if plugins.is_empty() {
        return "no plugins yet; load one with: lockgate plugin load my_op.wasm\n".to_owned();
    }
    use Side::{Left, Right};
    // The hash is never cut, because it is what other verbs take.
    let mut table = Table::new(&[("plugin", Right), ("operator", Left), ("size", Right), ("used by", Left)]);
    for plugin in plugins {
        let (hash, size, used_by) = (plugin.hash.clone(), size(plugin.size_bytes), plugin.used_by.join(", "));
        table.row(vec![hash, plugin.name(), size, used_by]);
    }
    table.text()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_has_whole_hashes_and_fits_a_terminal() {
        let plugin = |problem: Option<&str>| {
            json!({ "hash": "ab".repeat(32), "size_bytes": 100_000, "problem": problem, "used_by": ["x".repeat(64), "y".repeat(64)],
                    "operator": problem.is_none().then(|| json!({ "name": "count", "version": "0.1.0" })) })
        };
        let plugins = json!([plugin(None), plugin(Some("no such world"))]);
        let text = text(&serde_json::from_value::<Vec<Plugin>>(plugins).expect("plugins"));
        assert!(
            text.contains(&"ab".repeat(32)) && text.contains("count 0.1.0") && text.contains("unusable: "),
            "{text}"
        );
        assert!(text.lines().all(|line| line.chars().count() <= 120), "{text}");
    }

    #[test]
    fn the_hash_of_a_file_is_that_of_its_bytes() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("x");
        std::fs::write(&path, "abc").expect("a file");
        let (hash, bytes) = digest(&path).expect("read");
        assert_eq!(hash.as_str(), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
        assert_eq!(bytes, 3);
        assert!(digest(&folder.path().join("missing")).expect_err("none").to_string().contains("missing"));
    }
}
