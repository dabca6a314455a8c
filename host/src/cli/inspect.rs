//! `lockgate inspect`: what a component is.
//!
//! Invariant: what it prints as JSON has the same facts as the text.

use std::fmt;
use std::path::{Path, PathBuf};

use serde::Serialize;

use crate::cli::compiler::{CompilerArgs, engine};
use crate::cli::{CliError, print};
use crate::guest::{Descriptor, GuestError, Plugin, WORLD};

/// Show what an operator component is: its world, outputs, state tables, imports and exports. Refuse what isn't one
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  lockgate inspect my-op/my_op.wasm
  lockgate inspect my-op/my_op.wasm --json | jq .tables

Exit codes: 0 it is an operator; 2 it isn't, or is of another world")]
pub struct Args {
    /// The component
    #[arg(value_name = "FILE.WASM")]
    pub file: PathBuf,
    /// Print it as JSON
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    compiler: CompilerArgs,
}

/// # Errors
/// If the file isn't an operator of this host's world.
pub fn run(args: &Args) -> Result<(), CliError> {
    let engine = engine(args.compiler.compiler())?;
    let plugin = engine.inspect(&args.file).map_err(|error| refused(&error))?;
    let title = args.file.display().to_string();
    show(&Report::new(&args.file, &plugin), args.json, &title)
}

/// The error of a verb that needs the component.
pub(super) fn refused(error: &GuestError) -> CliError {
    CliError::unusable(error.to_string()).help(error.help())
}

/// How many imports, and exports, the text shows. Operators have fewer, unless they are made to be a nuisance.
const NAMES_SHOWN_MAX: usize = 100;

/// All that is known of a component without running a job.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    pub file: PathBuf,
    pub size_bytes: u64,
    pub sha256: String,
    pub world: String,
    #[serde(flatten)]
    pub operator: Descriptor,
    pub imports: Vec<String>,
    /// Those of the imports that are WASI's: nothing real is behind them.
    pub wasi_imports: Vec<String>,
    pub exports: Vec<String>,
}

impl Report {
    pub fn new(file: &Path, plugin: &Plugin) -> Report {
        let interface = plugin.interface();
        Report {
            file: file.to_owned(),
            size_bytes: plugin.size_bytes(),
            sha256: plugin.hash().to_owned(),
            world: format!("{}@{}", WORLD.package, interface.world_version().unwrap_or(WORLD.version)),
            operator: plugin.descriptor().clone(),
            imports: interface.imports.clone(),
            wasi_imports: interface.wasi_imports().cloned().collect(),
            exports: interface.exports.clone(),
        }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let line = |f: &mut fmt::Formatter<'_>, what: &str, values: &[String]| {
            let first = values.first().map_or("none", String::as_str);
            writeln!(f, "  {what:<9}{first}")?;
            values.iter().skip(1).try_for_each(|value| writeln!(f, "  {:<9}{value}", ""))
        };
        let operator = &self.operator;
        line(f, "operator", &[format!("{} {}", operator.name, operator.version)])?;
        line(f, "world", std::slice::from_ref(&self.world))?;
        line(f, "size", &[format!("{} bytes ({:.1} KiB)", self.size_bytes, self.size_bytes as f64 / 1024.0)])?;
        line(f, "sha256", std::slice::from_ref(&self.sha256))?;
        let input = |input: &crate::guest::Input| {
            format!("{}{}", input.name, if input.broadcast { " (broadcast)" } else { "" })
        };
        line(f, "inputs", &operator.inputs.iter().map(input).collect::<Vec<_>>())?;
        line(f, "outputs", &operator.outputs.iter().map(ToString::to_string).collect::<Vec<_>>())?;
        let table = |table: &crate::guest::Table| {
            format!("{} ({}, version {})", table.name, table.kind.as_str(), table.version)
        };
        line(f, "tables", &operator.tables.iter().map(table).collect::<Vec<_>>())?;
        line(f, "timers", &[if operator.timers { "yes" } else { "none" }.to_owned()])?;
        let import = |import: &String| {
            let is_wasi = self.wasi_imports.contains(import);
            format!("{import}{}", if is_wasi { " (satisfied by nothing real)" } else { "" })
        };
        line(f, "imports", &a_few(&self.imports, import))?;
        line(f, "exports", &a_few(&self.exports, String::clone))
    }
}

/// The first of the names, and how many more there are.
fn a_few(names: &[String], shown: impl Fn(&String) -> String) -> Vec<String> {
    let mut lines = names.iter().take(NAMES_SHOWN_MAX).map(shown).collect::<Vec<_>>();
    if names.len() > NAMES_SHOWN_MAX {
        lines.push(format!("and {} more", names.len() - NAMES_SHOWN_MAX));
    }
    lines
}

/// Prints a report to standard output.
///
/// # Errors
/// If standard output is closed.
pub(super) fn show(report: &Report, json: bool, title: &str) -> Result<(), CliError> {
    let text = if json {
        let text =
            serde_json::to_string_pretty(report).map_err(|error| CliError::failed("cannot print").caused_by(&error))?;
        format!("{text}\n")
    } else {
        format!("{title}\n{report}")
    };
    print::out(&text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_many_names_a_few_are_shown_and_the_rest_is_counted() {
        let names = |count: usize| (0..count).map(|number| number.to_string()).collect::<Vec<_>>();
        let all = names(NAMES_SHOWN_MAX);
        assert_eq!(a_few(&all, String::clone), all);
        let many = a_few(&names(90_000), |name| format!("<{name}>"));
        assert_eq!((many.len(), many[0].as_str()), (NAMES_SHOWN_MAX + 1, "<0>"));
        assert_eq!(many[NAMES_SHOWN_MAX], "and 89900 more");
    }
}
