//! Job files, good and bad: each key misspelt, each value of a wrong type or out of its range.

mod options;

use std::path::Path;
use std::time::Duration;

use super::*;
use crate::connector::{SinkOptions, SourceOptions};
use crate::graph::{Exchange, InputPlace, InputRef, Plan};
use crate::guest::Limits;
use crate::id::Name;

/// Every key that there is, once.
const FULL: &str = include_str!("full.toml");

const WORD_COUNT: &str = r#"
[job]
name = "word-count"

[source.text]
type = "file"
path = "input"

[operator.split]
wasm = "split.wasm"
input = "text"

[operator.count]
wasm = "count.wasm"
input = "split"

[sink.out]
type = "file"
path = "out"
input = "count"
"#;

fn parse(text: &str) -> Result<JobFile, ConfigError> {
    JobFile::parse(Path::new("jobs/job.toml"), text)
}

fn name(text: &str) -> Name {
    Name::new(text).expect("a usable name")
}

/// Message and help of a refusal.
#[track_caller]
fn refusal(text: &str) -> (String, String) {
    let error = parse(text).expect_err(text);
    (error.to_string(), error.help().unwrap_or_default())
}

/// Expects that the word count with `from` replaced by `to` is refused with `message` and a help that contains `help`.
#[track_caller]
fn refused(from: &str, to: &str, message: &str, help: &str) {
    assert!(WORD_COUNT.contains(from), "the word count has no {from:?}");
    let (found, found_help) = refusal(&WORD_COUNT.replacen(from, to, 1));
    assert_eq!(found, message);
    assert!(found_help.contains(help), "help is: {found_help}");
}

#[test]
fn a_word_count_gets_its_defaults_and_paths_beside_the_job_file() {
    let file = parse(WORD_COUNT).expect("a good job file");
    assert_eq!(file.job.as_str(), "word-count");
    assert_eq!(file.guarantee, Guarantee::ExactlyOnce);
    assert_eq!((file.parallelism, file.max_parallelism.key_groups()), (1, 128));
    assert_eq!(file.state_dir, Path::new("jobs/word-count.state"));
    assert_eq!(file.checkpoint.store, Path::new("jobs/word-count.state/checkpoints"));
    assert_eq!(file.checkpoint.interval, Duration::from_secs(1));
    assert_eq!(file.checkpoint.min_pause, Duration::ZERO);
    assert_eq!(file.checkpoint.timeout, Duration::from_secs(600));
    assert_eq!(file.checkpoint.retain, 3);
    let split = &file.operators[&name("split")];
    assert_eq!(split.wasm.as_file(), Some(Path::new("jobs/split.wasm")));
    assert_eq!(split.inputs, [InputRef { from: name("text"), port: None, input: InputPlace::Number(0) }]);
    assert_eq!((split.parallelism, split.exchange, split.config_json.as_str()), (1, None, "{}"));
    assert_eq!(split.limits, Limits::default());
    Plan::check_shape(&file.graph()).expect("a good graph");
}

#[test]
fn the_defaults_of_sources_and_sinks_are_those_of_their_rooms() {
    let head = "[job]\nname = 'defaults'\n";
    let kafka = "type = 'kafka'\nbrokers = 'a:1'\ntopics = ['b']";
    for options in ["type = 'file'\npath = '/in'", "type = 'generator'", kafka, "type = 'nexmark'"] {
        let file = parse(&format!("{head}[source.a]\n{options}")).expect(options);
        assert_eq!(file.sources[&name("a")].options, toml::from_str::<SourceOptions>(options).expect(options));
    }
    for options in ["type = 'file'\npath = '/out'", "type = 'kafka'\nbrokers = 'a:1'\ntopic = 'out'", "type = 'null'"] {
        let file = parse(&format!("{head}[sink.a]\n{options}")).expect(options);
        assert_eq!(file.sinks[&name("a")].options, toml::from_str::<SinkOptions>(options).expect(options));
    }
}

#[test]
fn what_a_source_or_sink_refuses_itself_is_told_with_its_key_and_line() {
    refused(
        "path = \"input\"",
        "path = \"\"",
        "jobs/job.toml:7: source.text.path: '' can't be used: name a file, a folder or a glob",
        "",
    );
    refused(
        "path = \"out\"",
        "path = \"out\"\nextension = \"../x\"",
        "jobs/job.toml:20: sink.out.extension: '../x' can't be used: it must be 1 to 16 letters, digits and single dots between them",
        "",
    );
}

#[test]
fn every_key_can_be_set() {
    let file = parse(FULL).expect("a good job file");
    assert_eq!(file.state_dir, Path::new("/var/lib/full"));
    assert_eq!(file.checkpoint.store, Path::new("jobs/elsewhere"));
    let parallelisms = |name_of: &str| file.operators[&name(name_of)].parallelism;
    assert_eq!((parallelisms("split"), parallelisms("count")), (4, 2));
    let count = &file.operators[&name("count")];
    assert_eq!(count.exchange, Some(Exchange::Hash));
    let input = |from: &str, port: Option<&str>, input| InputRef {
        from: name(from),
        port: port.map(str::to_owned),
        input: InputPlace::Number(input),
    };
    assert_eq!(count.inputs, [input("split", None, 0), input("text", None, 1), input("split", Some("late"), 1)]);
    assert_eq!(count.config_json, r#"{"any":{"thing":[1,"x"]},"at":"1979-05-27","big":9223372036854775808}"#);
    let limits = Limits {
        memory_bytes_max: 64 << 20,
        table_elements_max: 10_000,
        core_instances_max: 20,
        stack_bytes_max: 256 << 10,
        call_timeout: Duration::from_millis(500),
        output_bytes_max: 1 << 20,
        log_lines_per_second_max: 5,
        state_bytes_max: 1 << 30,
    };
    assert_eq!((count.limits, count.state_memory_bytes_max), (limits, 1 << 20));
    assert_eq!(file.sinks[&name("out")].parallelism, 3);
    assert_eq!(file.sources[&name("text")].parallelism, 2);
}

/// The key of a line `key = value` or the parts of a header, with where they stand in the line.
fn keys_of(line: &str) -> Vec<&str> {
    match line.strip_prefix('[').and_then(|line| line.strip_suffix(']')) {
        // The second part of a header is a name that the user chooses.
        Some(header) => header.split('.').enumerate().filter(|(part, _)| *part != 1).map(|(_, key)| key).collect(),
        None => line.split_once('=').map(|(key, _)| vec![key.trim()]).unwrap_or_default(),
    }
}

/// The usual slips: a letter left out, doubled, and two letters swapped.
fn slips(key: &str) -> [String; 3] {
    let middle = key.len() / 2;
    let left_out = [&key[..middle], &key[middle + 1..]].concat();
    let doubled = [&key[..middle], &key[middle..middle + 1], &key[middle..]].concat();
    let mut swapped = key.as_bytes().to_vec();
    swapped.swap(middle - 1, middle);
    let swapped = String::from_utf8(swapped).expect("keys are ASCII");
    // "memory" with its middle letters swapped is another word; "input" without a letter is no key either.
    [left_out, doubled, swapped]
}

#[test]
fn every_key_misspelt_is_refused_with_its_line_and_the_key_that_was_meant() {
    let lines = FULL.lines().collect::<Vec<_>>();
    let mut tried = 0;
    for (number, line) in lines.iter().enumerate().filter(|(_, line)| !line.starts_with('#')) {
        let free_form =
            lines[..=number].iter().rev().find(|line| line.starts_with('[')).is_some_and(|l| l.contains(".config"));
        for key in keys_of(line).into_iter().filter(|key| !free_form || line.starts_with('[') || *key == "config") {
            for slip in slips(key).into_iter().filter(|slip| slip != key) {
                let mut changed = lines.clone();
                let line = line.replacen(key, &slip, 1);
                changed[number] = &line;
                let error = parse(&changed.join("\n")).expect_err(&line);
                let ConfigError::UnknownKey { place, key: found, .. } = &error else { panic!("{line}: {error}") };
                assert_eq!((found, place.line), (&slip, Some(number + 1)), "{error}");
                let help = error.help().expect("a suggestion");
                assert!(help.starts_with(&format!("did you mean '{key}'?")), "{line}: {help}");
                tried += 1;
            }
        }
    }
    assert!(tried > 100, "{tried} slips");
}

#[test]
fn the_full_job_file_has_every_known_key() {
    for section in ["[job]", "[checkpoint]", "[restart]", "[source.", "[operator.", "[sink."] {
        for (number, line) in FULL.lines().enumerate().filter(|(_, line)| line.starts_with(section)) {
            if line.contains(".config") {
                continue;
            }
            let with_nonsense = FULL.lines().enumerate().map(|(at, line)| {
                if at == number { format!("{line}\nnonsense_key = 1\n") } else { format!("{line}\n") }
            });
            let error = parse(&with_nonsense.collect::<String>()).expect_err(line);
            let ConfigError::UnknownKey { known, .. } = &error else { panic!("{line}: {error}") };
            let table = FULL.lines().skip(number + 1).take_while(|line| !line.starts_with('['));
            let set = table.flat_map(keys_of).collect::<Vec<_>>();
            let subtables = ["limits", "config", "input", "inputs", "event_time", "watermark"];
            for key in known.iter().filter(|key| !subtables.contains(&key.as_str())) {
                assert!(set.contains(&key.as_str()), "full.toml lacks {key} in {line}");
            }
        }
    }
}

#[test]
fn every_value_of_a_wrong_type_is_refused_with_its_key_and_line() {
    let lines = FULL.lines().collect::<Vec<_>>();
    let mut section = String::new();
    for (number, line) in lines.iter().enumerate() {
        if let Some(header) = line.strip_prefix('[') {
            section = header.trim_end_matches(']').to_owned();
        }
        let Some((key, value)) =
            line.split_once('=').filter(|_| !section.contains(".config") && !line.starts_with('#'))
        else {
            continue;
        };
        for wrong in ["{ a = 1 }", "1979-05-27", "-1.5"] {
            let mut changed = lines.clone();
            let line = format!("{key}= {wrong}");
            changed[number] = &line;
            let error = parse(&changed.join("\n")).expect_err(&line);
            let (place, path) = match &error {
                ConfigError::WrongType { place, key, .. } | ConfigError::Invalid { place, key, .. } => (place, key),
                // These take tables as well.
                ConfigError::UnknownKey { place, table, .. } if key.trim() == "event_time" => (place, &table.0),
                other => panic!("{line} instead of {value}: {other}"),
            };
            let expected = format!("{section}.{}", key.trim());
            let inside = expected.ends_with("inputs") || expected.ends_with("input");
            assert!(*path == expected || inside && path.starts_with(&expected), "{error}");
            assert_eq!(place.line, Some(number + 1), "{error}");
        }
    }
}

#[test]
fn wrong_values_are_told_with_what_is_allowed() {
    refused(
        "[job]",
        "[job]\nguarantee = 'at-lest-once'",
        "jobs/job.toml:3: job.guarantee = \"at-lest-once\" is not known",
        "did you mean 'at-least-once'? (it can be: at-most-once, at-least-once, exactly-once)",
    );
    refused("[job]", "[job]\nparallelism = 0", "jobs/job.toml:3: job.parallelism: 0 is outside of 1 to 32768", "");
    refused(
        "[job]",
        "[job]\nmax_parallelism = 32769",
        "jobs/job.toml:3: job.max_parallelism: 32769 is outside of 1 to 32768",
        "",
    );
    refused("[job]", "[job]\nparallelism = -1", "jobs/job.toml:3: job.parallelism: -1 is outside of 1 to 32768", "");
    refused(
        "[job]",
        "[job]\nparallelism = '2'",
        "jobs/job.toml:3: job.parallelism is the text \"2\"; it must be a whole number",
        "",
    );
    refused("[job]", "[job]\nstate_dir = ''", "jobs/job.toml:3: job.state_dir: the path is empty", "");
    refused(
        "[source.text]",
        "[checkpoint]\ninterval = 1\n[source.text]",
        "jobs/job.toml:6: checkpoint.interval is 1; it must be a text in quotes",
        "",
    );
    refused(
        "[source.text]",
        "[checkpoint]\ninterval = '1 parsec'\n[source.text]",
        "jobs/job.toml:6: checkpoint.interval: '1 parsec' is not a duration: write a whole number and a unit (ms, s, m, h or d), \
         for example \"500ms\" or \"10s\"",
        "",
    );
    refused(
        "[source.text]",
        "[checkpoint]\ntimeout = '0s'\n[source.text]",
        "jobs/job.toml:6: checkpoint.timeout: 0ms is outside of 1ms to 30d",
        "",
    );
    refused(
        "[source.text]",
        "[checkpoint]\nretain = 0\n[source.text]",
        "jobs/job.toml:6: checkpoint.retain: 0 is outside of 1 to 1000",
        "",
    );
    refused(
        "input = \"text\"",
        "input = \"text\"\nlimits.memory = '1KiB'",
        "jobs/job.toml:12: operator.split.limits.memory: 1KiB is outside of 1MiB to 4GiB",
        "",
    );
    for (limit, message, help) in [
        ("stack = '2MiB'", "stack: 2MiB is outside of 64KiB to 1MiB", "\"512KiB\" is the default"),
        ("tables = 0", "tables: 0 is outside of 1 to 10000000", "200000 is the default"),
        ("instances = 20000", "instances: 20000 is outside of 1 to 10000", "100 is the default"),
        ("log_rate = -1", "log_rate: -1 is outside of 0 to 1000000", "0 is none"),
        ("state = '1KiB'", "state: 1KiB is outside of 1MiB to 1024TiB", "\"64GiB\" is the default"),
    ] {
        refused(
            "input = \"text\"",
            &format!("input = \"text\"\nlimits.{limit}"),
            &format!("jobs/job.toml:12: operator.split.limits.{message}"),
            help,
        );
    }
    refused(
        "input = \"text\"",
        "input = \"text\"\nexchange = 'hsah'",
        "jobs/job.toml:12: operator.split.exchange = \"hsah\" is not known",
        "did you mean 'hash'? (it can be: forward, hash, rebalance, broadcast)",
    );
    refused(
        "input = \"text\"",
        "input = \"text\"\nconfig = 3",
        "jobs/job.toml:12: operator.split.config is an integer; it must be a table",
        "",
    );
    refused(
        "input = \"text\"",
        "input = \"text\"\nconfig.a.b = [1.0, nan]",
        "jobs/job.toml:12: operator.split.config.a.b[1]: NaN has no form in JSON, in which the operator gets its config",
        "",
    );
}

#[test]
fn wrong_types_of_sources_and_sinks_are_told() {
    refused(
        "type = \"file\"",
        "type = \"flie\"",
        "jobs/job.toml:6: source.text.type = \"flie\" is not known",
        "did you mean 'file'? (it can be: file, generator, kafka, nexmark)",
    );
    refused(
        "type = \"file\"",
        "type = \"pulsar\"",
        "jobs/job.toml:6: source.text.type = \"pulsar\" is not known",
        "it can be: file, generator, kafka, nexmark",
    );
    refused(
        "type = \"file\"",
        "",
        "jobs/job.toml:5: [source.text] has no key 'type'",
        "add type = \"...\" with one of: file, generator, kafka, nexmark",
    );
    refused(
        "type = \"file\"",
        "type = 1",
        "jobs/job.toml:6: source.text.type is an integer; it must be one of file, generator, kafka, nexmark",
        "",
    );
    refused("path = \"input\"", "", "jobs/job.toml:5: [source.text] has no key 'path'", "add path = ... to it");
    refused(
        "[source.text]",
        "[source.'te xt']",
        "jobs/job.toml:5: source: 'te xt' is not a usable name: take 1 to 64 letters, digits, '_' or '-', starting with a letter or digit",
        "",
    );
    refused(
        "[source.text]",
        "[source]",
        "jobs/job.toml:7: source.path is a text; it must be a table with a name: [source.NAME]",
        "",
    );
    refused(
        "[source.text]",
        "[[source.text]]",
        "jobs/job.toml:5: source.text is a list; it must be a table with a name: [source.NAME]",
        "",
    );
}

#[test]
fn wrong_inputs_are_told() {
    let input = "input = \"text\"";
    refused(
        input,
        "input = \"te xt\"",
        "jobs/job.toml:11: operator.split.input: 'te xt' is not a usable name: take 1 to 64 letters, digits, '_' or '-', starting \
         with a letter or digit",
        "",
    );
    refused(
        input,
        "input = [\"text\"]",
        "jobs/job.toml:9: operator.split.input: it holds one name; a list or a table is what inputs holds",
        "write inputs = [\"text\"]",
    );
    refused(
        input,
        "input = \"text\"\ninputs = []",
        "jobs/job.toml:9: operator.split: input and inputs are two ways to say the same: take one of them",
        "",
    );
    refused(
        input,
        "inputs = [\"text\", 3]",
        "jobs/job.toml:11: operator.split.inputs[1] is 3; it must be a name, \"name:output\", or a list of these",
        "",
    );
    refused(
        input,
        "inputs = [[[\"text\"]]]",
        "jobs/job.toml:11: operator.split.inputs[0][0]: lists of inputs nest no deeper than two levels",
        "",
    );
}

#[test]
fn what_is_no_job_file_is_told_with_its_line() {
    let (message, _) = refusal("[job]\nname = ");
    assert!(message.starts_with("jobs/job.toml:2: this is not TOML: "), "{message}");
    let (message, _) = refusal("[job]\nname = \"a\"\nname = \"b\"");
    assert!(message.starts_with("jobs/job.toml:3: this is not TOML: duplicate key"), "{message}");
    assert_eq!(refusal("").0, "jobs/job.toml: [job] has no key 'name'");
    assert_eq!(refusal("job = 1").0, "jobs/job.toml:1: job is 1; it must be a table");
    let (message, help) = refusal("[jobs]\nname = \"a\"");
    assert_eq!(message, "jobs/job.toml:1: unknown key 'jobs' in the job file");
    assert_eq!(help, "did you mean 'job'? (the keys here are: job, checkpoint, restart, source, operator, sink)");
}

#[test]
fn a_file_that_cannot_be_read_is_told() {
    let dir = tempfile::tempdir().expect("a folder");
    let load = |file: &str| JobFile::load(&dir.path().join(file)).expect_err("unreadable");
    assert!(matches!(load("missing.toml"), ConfigError::Read { .. }));
    assert!(matches!(load("."), ConfigError::NotAFile { .. }));
    std::fs::write(dir.path().join("binary.toml"), b"[job]\nname = \"\xff\"").expect("written");
    assert!(matches!(load("binary.toml"), ConfigError::NotUtf8 { byte: 14, .. }));
    std::fs::write(dir.path().join("huge.toml"), vec![b'#'; (4 << 20) + 1]).expect("written");
    assert!(matches!(load("huge.toml"), ConfigError::TooLarge { .. }));
    std::fs::write(dir.path().join("good.toml"), WORD_COUNT).expect("written");
    let file = JobFile::load(&dir.path().join("good.toml")).expect("a good job file");
    assert_eq!(file.state_dir, dir.path().join("word-count.state"));
}
