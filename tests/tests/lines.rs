//! Lines pass from files to files byte by byte, whatever ends them and whatever they hold.

use std::fs;

use lockgate_tests::{JobFolder, part_files};

const JOB: &str = r#"[job]
name = "copy"
state_dir = "state"
[checkpoint]
interval = "20ms"
[source.text]
type = "file"
path = "input"
[sink.out]
type = "file"
path = "output"
input = "text"
"#;

fn copy(input: &[u8]) -> Vec<u8> {
    let folder = JobFolder::new();
    folder.write("job.toml", JOB);
    folder.write("input/lines", input);
    folder.run().assert_success();
    let files = part_files(&folder.path("output")).expect("the output can be listed");
    files.iter().flat_map(|file| fs::read(file).expect("a part file can be read")).collect()
}

#[test]
fn every_line_end_ends_a_line_and_a_last_line_needs_none() {
    assert_eq!(copy(b"unix\nwindows\r\nold mac\rlast"), b"unix\nwindows\nold mac\nlast\n");
}

#[test]
fn empty_lines_are_records() {
    assert_eq!(copy(b"\n\na\n\n"), b"\n\na\n\n");
}

#[test]
fn bytes_that_are_not_utf8_pass_unchanged() {
    let mut line: Vec<u8> = (0..=255).filter(|byte| !b"\r\n".contains(byte)).collect();
    line.push(b'\n');
    assert_eq!(copy(&line), line);
}

#[test]
fn an_empty_file_has_no_records() {
    assert_eq!(copy(b""), b"");
}
