//! The modules with which operators are written in Python and JavaScript: values that come and go, rejected records without any
//! effect, several outputs, state that is in no table.

use std::collections::HashMap;
use std::fs;

use lockgate_tests::{JobFolder, Language, module_operators, operator_of, part_files};

/// Values as they come; some are refused, some remove what is known of their key.
const VALUES: [&str; 9] = ["one", "", "bad", "n\u{e4}\u{ef}ve", "forget", "forget", "two, and more", "bad", "bad"];

fn lines(from: usize, to: usize) -> Vec<(String, &'static str)> {
    (from..to).map(|number| (format!("key{}", number * 7 % 13), VALUES[number * 5 % VALUES.len()])).collect()
}

/// What the operator must know of a key.
#[derive(Clone)]
struct Known {
    of_key: u64,
    balance: i64,
    last: String,
}

/// What the operator must do, in other words.
#[derive(Default)]
struct Expected {
    known: HashMap<String, Known>,
    seen: u64,
    out: Vec<String>,
    side: Vec<String>,
    dead: usize,
}

impl Expected {
    fn take(&mut self, lines: &[(String, &str)]) {
        for (key, value) in lines {
            if *value == "bad" {
                self.dead += 1;
                continue;
            }
            let fresh = Known { of_key: 0, balance: 0, last: "nothing".to_owned() };
            let mut known = self.known.get(key).cloned().unwrap_or(fresh);
            known.of_key += 1;
            known.balance -= 100;
            self.out.push(format!("{key} {} {} {}", known.of_key, known.balance, known.last));
            self.side.push((*value).to_owned());
            (*value).clone_into(&mut known.last);
            match *value {
                "forget" => self.known.remove(key),
                _ => self.known.insert(key.clone(), known),
            };
            self.seen += 1;
        }
        // The input ends, which is the last watermark.
        self.out.push(format!("seen {}", self.seen));
    }
}

fn committed(folder: &JobFolder, name: &str) -> Vec<String> {
    let files = part_files(&folder.path(name)).expect("the output can be listed");
    let texts = files.iter().map(|file| fs::read_to_string(file).expect("output is text"));
    texts.flat_map(|text| text.lines().map(str::to_owned).collect::<Vec<_>>()).collect()
}

fn write_job(folder: &JobFolder, wasm: &std::path::Path) {
    let job = format!(
        r#"[job]
name = "picky"
state_dir = "state"
[checkpoint]
interval = "50ms"
[restart]
strategy = "none"
[source.text]
type = "file"
path = "input"
[operator.parse]
wasm = "{parse}"
input = "text"
[operator.picky]
wasm = "{wasm}"
input = "parse"
on_error = "dead-letter"
[sink.out]
type = "file"
path = "out"
input = "picky"
[sink.side]
type = "file"
path = "side"
input = "picky:side"
[sink.dead]
type = "file"
path = "dead"
input = "picky:dead-letters"
"#,
        parse = operator_of("tests/blocks", "parse").display(),
        wasm = wasm.display(),
    );
    folder.write("job.toml", job);
}

#[track_caller]
fn assert_does_as_expected(language: Language, file: &str) {
    if language.is_missing("the modules for other languages") {
        return;
    }
    let folder = JobFolder::new();
    write_job(&folder, &module_operators().join(file));
    let mut expected = Expected::default();
    // The second run begins with what the first has left, in tables and beside them.
    for (from, to) in [(0, 6_000), (6_000, 9_001)] {
        let lines = lines(from, to);
        let text = lines.iter().map(|(key, value)| format!("{key},{from},{value}\n")).collect::<String>();
        folder.write(format!("input/{from:05}.txt"), text);
        let finished = folder.run();
        finished.assert_success();
        // Only the module for Python sends what is printed to the log.
        let is_told = finished.stderr.contains("picky goes on with 1");
        assert_eq!(is_told, from > 0 && language == Language::Python, "{}", finished.stderr);
        expected.take(&lines);
    }
    assert_eq!(committed(&folder, "out"), expected.out);
    assert_eq!(committed(&folder, "side"), expected.side);
    let dead = committed(&folder, "dead");
    assert_eq!(dead.len(), expected.dead);
    let stray = dead.iter().find(|letter| !letter.contains("a bad value") || !letter.contains("\"value\":\"bad\""));
    assert_eq!(stray, None, "a dead letter says which record it was, and why");
}

#[test]
fn an_operator_in_python_does_as_the_module_promises() {
    assert_does_as_expected(Language::Python, "picky-python.wasm");
}

#[test]
fn an_operator_in_javascript_does_as_the_module_promises() {
    assert_does_as_expected(Language::JavaScript, "picky-javascript.wasm");
}
