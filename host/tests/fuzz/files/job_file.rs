//! Job files: the text that a user writes, and what is planned from it.

use std::collections::BTreeMap;
use std::path::Path;

use lockgate_host::config::JobFile;
use lockgate_host::graph::Plan;
use lockgate_host::guest::{Declared, Descriptor};

use crate::chance::Chance;
use crate::damage::damaged_text;
use crate::harness::Target;
use crate::text;

const JOB_FILE: Target = Target {
    name: "job_file",
    seeds: 1_500,
    bytes_max: 256,
    memory_bytes_max: 16 << 20,
    outcomes: &["planned", "refused", "unplanned"],
    case,
};

#[test]
fn any_text_is_a_job_file_or_an_error_that_says_where() {
    JOB_FILE.run();
}

const FULL: &str = include_str!("../../../src/config/full.toml");
const SMALL: &str = "[job]\nname = 'a'\n[source.in]\ntype = 'file'\npath = 'in'\n[operator.op]\nwasm = 'op.wasm'\n\
                     input = 'in'\n[operator.op.config]\na = [1, {b = 'x'}]\n[sink.out]\ntype = 'file'\npath = 'out'\n\
                     input = 'op'\n";

/// What somebody might write where it doesn't belong.
const WORDS: [&str; 41] = [
    "\n",
    "\"",
    "'",
    "'''",
    "=",
    "[",
    "]",
    "[[",
    "{",
    "}",
    ",",
    ".",
    "#",
    "-1",
    "0",
    "1e999",
    "nan",
    "99999999999999999999",
    "999999999999999999999999999999999999999999",
    "0x",
    "1979-05-27",
    "true",
    "\u{1b}[2J",
    "\u{0}",
    "é",
    "\u{202e}",
    "[sink.out]\n",
    "[operator.op]\n",
    "input = 'op'\n",
    "inputs = ['in', 'op']\n",
    "parallelism = 5000\n",
    "guarantee = 'at-most-once'\n",
    "exchange = 'forward'\n",
    "on_error = 'dead-letter'\n",
    "'op:dead-letters'",
    "type = 'kafka'\n",
    "topics = ['a']\n",
    "18446744073709551615d",
    "interval = '0ms'\n",
    "max_parallelism = 1\n",
    "a.b.c = 1\n",
];

/// Other values for some keys.
fn with_other_values(chance: &mut Chance<'_, '_>, whole: &str) -> String {
    let mut lines = whole.lines().map(str::to_owned).collect::<Vec<_>>();
    for _ in 0..chance.between(1, 3) {
        let place = chance.below(lines.len());
        if let Some((key, value)) = lines[place].split_once(" = ") {
            let value = match chance.below(4) {
                0 => format!("[{value}]"),
                1 => format!("'{}'", chance.pick(&["", "0ms", "99999999999d", "16EiB", "sha256:0", "a/../..", "%"])),
                _ => (*chance.pick(&WORDS)).to_owned(),
            };
            lines[place] = format!("{key} = {value}");
        }
    }
    lines.join("\n")
}

fn case(chance: &mut Chance<'_, '_>) -> Result<&'static str, String> {
    let whole = if chance.one_in(2) { FULL } else { SMALL };
    let written = match chance.below(12) {
        0 => whole.to_owned(),
        1 => String::from_utf8_lossy(&chance.bytes(200)).into_owned(),
        2..8 => with_other_values(chance, whole),
        _ => damaged_text(chance, whole, &WORDS),
    };
    chance.tell(|| written.clone());
    let path = Path::new("folder/job.toml");
    let file = match JobFile::parse(path, &written) {
        Ok(file) => file,
        Err(error) => {
            text::check_error(&error)?;
            error.help().map_or(Ok(()), |help| text::check(&help))?;
            let is_named = error.to_string().starts_with("folder/job.toml");
            return if is_named { Ok("refused") } else { Err(format!("it isn't said which file it is: {error}")) };
        }
    };
    let again = JobFile::parse(path, &written).map_err(|error| format!("the second time: {error}"))?;
    if format!("{file:?}") != format!("{again:?}") {
        return Err("the same text is two job files".to_owned());
    }
    for operator in file.operators.values() {
        serde_json::from_str::<serde_json::Map<String, serde_json::Value>>(&operator.config_json)
            .map_err(|error| format!("the configuration isn't a JSON object: {error}"))?;
    }
    let plain = Descriptor::new(Declared::PLAIN).expect("a plain operator");
    let facts = file.operators.keys().map(|name| (name.clone(), plain.facts())).collect::<BTreeMap<_, _>>();
    match Plan::new(&file.graph(), &facts) {
        Ok(_) => Ok("planned"),
        Err(error) => {
            text::check_error(&error)?;
            text::check(&error.help())?;
            Ok("unplanned")
        }
    }
}
