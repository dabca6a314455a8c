//! A test for the operator's own crate out of a capsule: the record, and the state that the call has read.
//!
//! It runs natively in the SDK's harness, where a debugger and `println!` are at hand. It fails as long as the operator does.
//!
//! Invariant: whatever a capsule holds, what is written is a Rust test with nothing of it outside of literals; and no file is
//! replaced.

use std::collections::BTreeSet;
use std::fmt::Write;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::capsule::{Capsule, Outcome, StateOf};
use super::error::ReplayError;
use crate::element::{Batch, Header, NO_TIMESTAMP};
use crate::guest::{Place, TrialCall};
use crate::state::Clock;

/// More files of a crate aren't looked through.
const SOURCES_MAX: usize = 10_000;

/// What a test has to know of the operator's crate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TestSource {
    /// The name of its library.
    pub library: String,
    /// The path of the operator's type in it.
    pub operator: String,
}

/// Writes a test into the `tests` folder of the operator's crate, whose type is `operator`, or the one that it exports. Gives the
/// file's path.
///
/// # Errors
/// If the folder isn't that of the operator's crate, the type isn't known, or the file can't be written or is there.
pub fn write_test(capsule: &Capsule, folder: &Path, operator: Option<&str>) -> Result<PathBuf, ReplayError> {
    let source = TestSource::find(capsule, folder, operator)?;
    let tests = folder.join("tests");
    let failed = |action, path: &Path, source| ReplayError::File { action, path: path.to_owned(), source };
    fs::create_dir_all(&tests).map_err(|error| failed("create the folder", &tests, error))?;
    let name = capsule.place.subtask.operator.as_str().replace('-', "_");
    let path = tests.join(format!("replay_{name}_{:08x}.rs", capsule.identity().0 >> 96));
    let written = fs::File::create_new(&path)
        .and_then(|mut file| io::Write::write_all(&mut file, source.test(capsule).as_bytes()));
    written.map_err(|error| failed("write the test", &path, error))?;
    Ok(path)
}

impl TestSource {
    fn find(capsule: &Capsule, folder: &Path, operator: Option<&str>) -> Result<TestSource, ReplayError> {
        let refused = |problem: String| ReplayError::NoCrate { folder: folder.to_owned(), problem };
        let manifest = fs::read_to_string(folder.join("Cargo.toml"));
        let manifest = manifest.map_err(|error| refused(format!("its Cargo.toml can't be read: {error}")))?;
        let manifest = manifest.parse::<toml::Table>().map_err(|error| refused(error.message().to_owned()))?;
        let named = |section: &str| manifest.get(section).and_then(|section| section.get("name")?.as_str());
        let package = named("package").ok_or_else(|| refused("its Cargo.toml names no package".to_owned()))?;
        if package != capsule.component.name {
            return Err(refused(format!(
                "it is that of '{package}', and the capsule is of '{}'",
                capsule.component.name
            )));
        }
        let library = named("lib").map_or_else(|| package.replace('-', "_"), str::to_owned);
        let operator = match operator {
            Some(operator) => operator.to_owned(),
            None => {
                let exported = exported(&folder.join("src"))
                    .map_err(|error| refused(format!("its sources can't be read: {error}")))?;
                let exported = exported.into_iter().collect::<Vec<_>>();
                match &exported[..] {
                    [one] => one.clone(),
                    [] => return Err(refused("no file in src has the line lockgate::export!(…)".to_owned())),
                    several => {
                        return Err(refused(format!("it exports {}: say which with --type", several.join(", "))));
                    }
                }
            }
        };
        if [&library, &operator].iter().all(|path| is_path(path)) {
            return Ok(TestSource { library, operator });
        }
        Err(refused(format!("'{library}::{operator}' is no path of a type")))
    }

    /// The test's text.
    fn test(&self, capsule: &Capsule) -> String {
        let TestSource { library, operator } = self;
        let (last, clock) = (operator.rsplit("::").next().unwrap_or_default(), uses_clock(&capsule.trial.call));
        let mut text = String::new();
        head(&mut text, capsule);
        let records = if matches!(capsule.trial.call, TrialCall::Process { .. }) { ", TestRecord" } else { "" };
        let clock = if clock { "use lockgate::Clock;\n" } else { "" };
        line(&mut text, format_args!("{clock}use lockgate::Place;"));
        line(&mut text, format_args!("use lockgate::testing::{{Harness, Snapshot{records}}};\n"));
        line(&mut text, format_args!("use {library}::{operator};\n"));
        line(&mut text, format_args!("#[test]\nfn what_failed_in_the_job_is_processed() {{"));
        place(&mut text, &capsule.place);
        state(&mut text, capsule);
        line(
            &mut text,
            format_args!(
                "    let mut harness = Harness::<{last}>::restore_at(place, &[&state]).expect(\"the state of the failure\");"
            ),
        );
        call(&mut text, capsule);
        if capsule.place.rejections {
            line(&mut text, format_args!("    let rejections = harness.take_rejections();"));
            line(&mut text, format_args!("    assert!(rejections.is_empty(), \"{{rejections:?}}\");"));
        }
        line(&mut text, format_args!("}}"));
        text
    }
}

fn line(text: &mut String, line: std::fmt::Arguments<'_>) {
    writeln!(text, "{line}").expect("a string takes everything");
}

/// The file's header, as comments.
fn head(text: &mut String, capsule: &Capsule) {
    let Capsule { place, component, epoch, .. } = capsule;
    line(text, format_args!("//! What operator '{}' of job '{}' could not process.", place.subtask, place.job));
    line(text, format_args!("//!"));
    for said in format!("{}: {}", what(&capsule.trial.call), capsule.tried).lines() {
        line(text, format_args!("//! {}", comment(said)));
    }
    let of = format!("{} {}, before checkpoint {epoch}", component.name, component.version);
    line(text, format_args!("//! It was seen with {}.", comment(&of)));
    if capsule.state_of == StateOf::Snapshot {
        line(text, format_args!("//! The state is that of the last snapshot before."));
    }
    if let Outcome::Failed { kind, .. } = &capsule.tried {
        let warning = match kind.as_str() {
            "deadline" => "As long as the operator fails, this test may never end: run it under `timeout`.",
            "memory" | "output" => {
                "The harness has no limits, so that this test may pass all the same, or use up memory."
            }
            "stack" => "As long as the operator fails, this test ends with an overflow of the stack.",
            _ => "",
        };
        if !warning.is_empty() {
            line(text, format_args!("//! {warning}"));
        }
    }
    line(text, format_args!("//!"));
    line(
        text,
        format_args!(
            "//! Made by `lockgate replay CAPSULE --write-test DIR`. The operator's type must be public, and the crate's"
        ),
    );
    line(text, format_args!("//! [lib] have crate-type = [\"cdylib\", \"lib\"].\n"));
}

/// Fit for a comment on one line.
fn comment(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect()
}

fn what(call: &TrialCall) -> &'static str {
    match call {
        TrialCall::Process { .. } => "a record",
        TrialCall::Timers { .. } => "a timer",
        TrialCall::Watermark { .. } => "a watermark",
    }
}

fn uses_clock(call: &TrialCall) -> bool {
    matches!(call, TrialCall::Timers { .. })
}

fn place(text: &mut String, place: &Place) {
    let Place { job, subtask, parallelism, config_json, rejections } = place;
    line(text, format_args!("    let place = Place {{"));
    line(text, format_args!("        job: {:?}.to_owned(),", job.as_str()));
    line(text, format_args!("        operator: {:?}.to_owned(),", subtask.operator.as_str()));
    line(text, format_args!("        subtask: {},\n        parallelism: {parallelism},", subtask.index));
    line(text, format_args!("        config: {config_json:?}.to_owned(),\n        rejections: {rejections},\n    }};"));
}

fn state(text: &mut String, capsule: &Capsule) {
    let trial = &capsule.trial;
    write!(text, "    let state = Snapshot::new()").expect("a string takes everything");
    for state in &trial.states {
        write!(text, "\n        .with_state({})", literal(state)).expect("a string takes everything");
    }
    // A harness brings it there itself otherwise, which is what fails.
    if matches!(trial.call, TrialCall::Process { .. }) && trial.watermark_ms != NO_TIMESTAMP {
        write!(text, "\n        .with_watermark({})", trial.watermark_ms).expect("a string takes everything");
    }
    for entry in &capsule.entries {
        let table = capsule.tables[entry.table as usize].name.as_str();
        let [key, user_key, value] = [&entry.key, &entry.user_key, &entry.value].map(|bytes| literal(bytes));
        write!(text, "\n        .with_entry({table:?}, {key}, {user_key}, {value})")
            .expect("a string takes everything");
    }
    if let TrialCall::Timers { clock, rows } = &trial.call {
        let clock = match clock {
            Clock::EventTime => "Clock::EventTime",
            Clock::ProcessingTime => "Clock::ProcessingTime",
        };
        let [key, tag] = [rows.key(0), rows.value(0)].map(|bytes| literal(bytes.unwrap_or_default()));
        write!(text, "\n        .with_timer({clock}, {}, {key}, {tag})", rows.timestamp(0))
            .expect("a string takes everything");
    }
    line(text, format_args!(";"));
}

fn call(text: &mut String, capsule: &Capsule) {
    let trial = &capsule.trial;
    let advance_time = |text: &mut String, end: &str| {
        line(text, format_args!("    harness.advance_processing_time({}).expect(\"{end}\");", trial.now_ms));
    };
    match &trial.call {
        TrialCall::Process { port, rows } => {
            advance_time(text, "no timer is set");
            record(text, rows);
            let input = capsule.inputs[*port as usize].as_str();
            line(
                text,
                format_args!("    harness.process_from({input:?}, [record]).expect(\"the record is processed\");"),
            );
        }
        TrialCall::Timers { clock: Clock::ProcessingTime, .. } => advance_time(text, "the timer fires"),
        TrialCall::Timers { clock: Clock::EventTime, .. } => {
            let end = "the timer fires";
            line(text, format_args!("    harness.advance_watermark({}).expect(\"{end}\");", trial.watermark_ms));
        }
        TrialCall::Watermark { timestamp } => {
            let end = "the watermark is taken";
            line(text, format_args!("    harness.advance_watermark({timestamp}).expect(\"{end}\");"));
        }
    }
}

fn record(text: &mut String, rows: &Batch) {
    let field =
        |bytes: Option<&[u8]>| bytes.map_or("None".to_owned(), |bytes| format!("Some({}.to_vec())", literal(bytes)));
    let (key, value) = (field(rows.key(0)), field(rows.value(0)));
    let timestamp = Some(rows.timestamp(0)).filter(|timestamp| *timestamp != NO_TIMESTAMP);
    line(text, format_args!("    let record = TestRecord {{"));
    line(text, format_args!("        key: {key},\n        value: {value},\n        timestamp: {timestamp:?},"));
    let header = |Header { name, value }: Header<'_>| format!("({name:?}.to_owned(), {})", field(value));
    let headers = rows.headers(0).map(header).collect::<Vec<_>>();
    line(text, format_args!("        headers: vec![{}],\n    }};", headers.join(", ")));
}

/// Bytes as Rust has them.
fn literal(bytes: &[u8]) -> String {
    format!("b\"{}\"", bytes.escape_ascii())
}

/// Segments of letters, digits and underscores.
fn is_path(path: &str) -> bool {
    path.split("::").all(|segment| {
        !segment.is_empty()
            && segment.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
            && !segment.starts_with(|c: char| c.is_ascii_digit())
    })
}

/// What the files below a folder export.
fn exported(sources: &Path) -> io::Result<BTreeSet<String>> {
    let (mut found, mut folders, mut files) = (BTreeSet::new(), vec![sources.to_owned()], 0);
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder)? {
            let (path, kind) = entry.and_then(|entry| Ok((entry.path(), entry.file_type()?)))?;
            if kind.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|end| end == "rs") {
                files += 1;
                if files > SOURCES_MAX {
                    return Err(io::Error::other(format!("there are more than {SOURCES_MAX} files")));
                }
                found.extend(exports_in(&fs::read_to_string(&path)?));
            }
        }
    }
    Ok(found)
}

/// The types in lines like `lockgate::export!(Count);`.
fn exports_in(text: &str) -> impl Iterator<Item = String> {
    let of_line = |line: &str| {
        let rest = line.trim().strip_prefix("lockgate::export!(")?;
        let path = rest.split(')').next()?.trim();
        let path = path.strip_prefix("crate").and_then(|path| path.strip_prefix("::")).unwrap_or(path);
        is_path(path).then(|| path.to_owned())
    };
    text.lines().filter_map(of_line)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_crate_exports_is_found_in_its_lines() {
        let text =
            "//! lockgate::export!(No);\nuse x;\n\nlockgate::export!(Count);\n    lockgate::export!( crate::a::B );";
        assert_eq!(exports_in(text).collect::<Vec<_>>(), ["Count", "a::B"]);
        assert_eq!(exports_in("lockgate::export!(Of<u8>);").count(), 0);
    }

    #[test]
    fn bytes_stay_within_their_literal() {
        assert_eq!(literal(b"a\"\\\n\xff\0"), r#"b"a\"\\\n\xff\x00""#);
        assert!(is_path("a::B_1") && !is_path("a::") && !is_path("1a") && !is_path("a; b"));
    }
}
