//! A job with one block: lines from a file, `parse` for each input, the block in two subtasks, its output and late
//! records in files.

use std::fmt::Write;
use std::fs;
use std::path::Path;

use lockgate_tests::{JobFolder, operator_of, part_files};

use crate::input::Line;

/// The block's feature, and what its job is like.
#[derive(Clone, Copy)]
pub enum Block {
    /// One input.
    One(&'static str),
    /// Two inputs, `left` and `right`.
    Two(&'static str),
}

pub struct Output {
    pub folder: JobFolder,
}

impl Output {
    pub fn lines(&self) -> Vec<String> {
        read(&self.folder.path("output"))
    }

    pub fn late(&self) -> Vec<String> {
        read(&self.folder.path("late"))
    }

    /// # Panics
    /// Unless the output is these lines, in any order.
    #[track_caller]
    pub fn assert(&self, mut wanted: Vec<String>) {
        assert!(!wanted.is_empty(), "no output tests nothing");
        let mut lines = self.lines();
        lines.sort();
        wanted.sort();
        let differs = lines.iter().zip(&wanted).find(|(line, wanted)| line != wanted);
        assert!(
            lines == wanted,
            "{} lines instead of {}; the first that differ: {differs:?}",
            lines.len(),
            wanted.len()
        );
    }
}

fn read(folder: &Path) -> Vec<String> {
    let files = part_files(folder).expect("the output can be listed");
    let text = files.iter().map(|file| fs::read_to_string(file).expect("output is text")).collect::<String>();
    text.lines().map(str::to_owned).collect()
}

/// Runs a block over the lines of each of its inputs.
pub fn run(block: Block, inputs: &[&[Line]]) -> Output {
    let output = prepare(block, inputs, "");
    output.folder.run().assert_success();
    output
}

/// Tumbling windows over the lines of several files, which one subtask reads; with more lines of `[source]`.
pub fn run_files(files: &[&[Line]], more: &str) -> Output {
    let output = prepare(Block::One("tumbling"), &[files[0]], "");
    for (number, lines) in files.iter().enumerate().skip(1) {
        output.folder.write(format!("in/more-{number}.csv"), text(lines));
    }
    let job_file = output.folder.path("job.toml");
    let job = fs::read_to_string(&job_file).expect("it was written");
    let type_file = "[source.in]\ntype = 'file'\n";
    assert!(job.contains(type_file));
    fs::write(job_file, job.replace(type_file, &format!("{type_file}{more}"))).expect("written");
    output.folder.run().assert_success();
    output
}

/// A job with a block that has not run; with more lines of `[checkpoint]`.
pub fn prepare(block: Block, inputs: &[&[Line]], checkpoint: &str) -> Output {
    let (feature, names): (_, &[&str]) = match block {
        Block::One(feature) => (feature, &["in"]),
        Block::Two(feature) => (feature, &["left", "right"]),
    };
    let folder = JobFolder::new();
    let mut text = format!("{HEAD}{checkpoint}\n");
    for (name, lines) in names.iter().zip(inputs) {
        write_file(&folder, name, lines);
        text += &source(name);
    }
    let inputs = names.iter().map(|name| format!("{name} = \"parse-{name}\"")).collect::<Vec<_>>().join(", ");
    let wasm = operator_of("tests/blocks", feature);
    write!(
        text,
        "[operator.block]\nwasm = '{}'\ninputs = {{ {inputs} }}\nparallelism = 2\n\
         [sink.out]\ntype = 'file'\npath = 'output'\ninput = 'block'\n",
        wasm.display()
    )
    .expect("text grows");
    if matches!(feature, "tumbling" | "sliding" | "session") {
        text += "[sink.late]\ntype = 'file'\npath = 'late'\ninput = 'block:late'\n";
    }
    folder.write("job.toml", text);
    Output { folder }
}

/// First the control stream alone, then the records, in a second run that goes on from the first one's checkpoint.
pub fn run_enrichment(records: &[Line], names: &[Line]) -> Output {
    let folder = JobFolder::new();
    write_file(&folder, "names", names);
    folder.create_dir("records");
    let wasm = operator_of("tests/blocks", "enrich");
    let text = format!(
        "{HEAD}{}{}[operator.block]\nwasm = '{}'\ninputs = {{ records = 'parse-records', names = 'parse-names' }}\n\
         parallelism = 2\n[sink.out]\ntype = 'file'\npath = 'output'\ninput = 'block'\n",
        source("records"),
        source("names"),
        wasm.display()
    );
    folder.write("job.toml", text);
    folder.run().assert_success();
    write_file(&folder, "records", records);
    folder.run().assert_success();
    Output { folder }
}

const HEAD: &str = "[job]\nname = 'block'\nstate_dir = 'state'\n[checkpoint]\ninterval = '5ms'\n";

fn source(name: &str) -> String {
    let parse = operator_of("tests/blocks", "parse");
    format!(
        "[source.{name}]\ntype = 'file'\npath = '{name}'\n\
         [source.{name}.event_time]\nfrom = 'csv'\ncolumn = 1\n\
         [source.{name}.watermark]\nstrategy = 'bounded'\nmax_out_of_orderness = '1s'\n\
         [operator.parse-{name}]\nwasm = '{}'\ninput = '{name}'\n",
        parse.display()
    )
}

/// One file, so that all records come in the order of the lines.
fn write_file(folder: &JobFolder, name: &str, lines: &[Line]) {
    folder.write(format!("{name}/lines.csv"), text(lines));
}

fn text(lines: &[Line]) -> String {
    lines.iter().map(|Line { key, time, value }| format!("{key},{time},{value}\n")).collect()
}
