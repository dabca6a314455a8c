//! What an operator's author types, with the real binary: `new`, `cargo test`, `build`, `inspect`, and a job that runs the result.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use lockgate_tests::{Finished, JobFolder, Running, lockgate, operator, part_files, target_dir};

/// The exit code for what can't be used.
const UNUSABLE: i32 = 2;
/// The exit code for work that failed.
const FAILED: i32 = 1;

/// A verb of the binary, as on a machine without a network.
fn command(verb: &str) -> Command {
    let mut command = Command::new(lockgate());
    command.arg(verb).env("CARGO_NET_OFFLINE", "true").env("CARGO_TARGET_DIR", target_dir().join("operator-tools"));
    command
}

fn build(crate_dir: &Path) -> Command {
    let mut command = command("build");
    command.arg(crate_dir);
    command
}

fn inspect(file: &Path, options: &[&str]) -> Finished {
    let mut command = command("inspect");
    command.arg(file).args(options);
    Running::start(command).wait()
}

fn new_operator(folder: &JobFolder, name: &str) -> PathBuf {
    let mut new = command("new");
    new.arg(name).current_dir(folder.path(""));
    Running::start(new).wait().assert_success();
    folder.path(name)
}

/// A crate with these lines as its library.
fn write_crate(folder: &JobFolder, name: &str, library: &str) -> PathBuf {
    let manifest = format!(
        "[package]\nname = \"{name}\"\nversion = \"0.1.0\"\nedition = \"2024\"\n[lib]\ncrate-type = [\"cdylib\"]\n[workspace]\n"
    );
    folder.write(format!("{name}/Cargo.toml"), manifest);
    folder.write(format!("{name}/src/lib.rs"), library);
    folder.path(name)
}

#[test]
fn a_new_operator_passes_its_test_builds_without_a_network_and_runs() {
    let folder = JobFolder::new();
    let made = new_operator(&folder, "word-tally");
    let mut test = Command::new(env!("CARGO"));
    test.arg("test").current_dir(&made).env("CARGO_NET_OFFLINE", "true");
    test.env("CARGO_TARGET_DIR", target_dir().join("operator-tools"));
    let tested = Running::start(test).wait();
    tested.assert_success();
    assert!(tested.stdout.contains("test result: ok. 2 passed"), "{}", tested.stdout);

    let built = Running::start(build(&made)).wait();
    built.assert_success();
    let wasm = made.join("word_tally.wasm");
    assert!(built.stdout.starts_with(&format!("built {}", wasm.display())), "{}", built.stdout);
    assert_inspected(&wasm);

    let job = format!(
        "[job]\nname = \"tally\"\nstate_dir = \"state\"\n[source.text]\ntype = \"file\"\npath = \"input\"\n[operator.split]\nwasm = \"{}\"\n\
         input = \"text\"\n[operator.tally]\nwasm = \"{}\"\ninput = \"split\"\nconfig.at_least = 2\n[sink.out]\ntype = \"file\"\n\
         path = \"output\"\ninput = \"tally\"\n",
        operator("split").display(),
        wasm.display()
    );
    folder.write("job.toml", job);
    folder.write("input/a.txt", "tea oil tea\n");
    folder.run().assert_success();
    let files = part_files(&folder.path("output")).expect("the output can be listed");
    let output: String = files.iter().map(|file| fs::read_to_string(file).expect("output is text")).collect();
    assert_eq!(output, "tea\t2\n");
}

#[test]
fn copies_of_a_crate_that_share_a_target_folder_are_built_each() {
    let folders = [JobFolder::new(), JobFolder::new()];
    let copies = folders.each_ref().map(|folder| new_operator(folder, "twin"));
    let source = copies[1].join("src/lib.rs");
    let changed = fs::read_to_string(&source).expect("it is there").replace("\"counts\"", "\"tallies\"");
    fs::write(&source, changed).expect("the folder is ours");
    // The second one is older than what was built of the first, and after it the first than what was built of the second.
    for (copy, table) in [(&copies[0], "counts"), (&copies[1], "tallies"), (&copies[0], "counts")] {
        Running::start(build(copy)).wait().assert_success();
        let inspected = inspect(&copy.join("twin.wasm"), &["--json"]);
        let inspected: serde_json::Value = serde_json::from_str(&inspected.stdout).expect("one JSON value");
        assert_eq!(inspected["tables"][0]["name"], table);
    }
}

/// Text and JSON have the same facts.
#[track_caller]
fn assert_inspected(wasm: &Path) {
    let (text, json) = (inspect(wasm, &[]), inspect(wasm, &["--json"]));
    text.assert_success();
    json.assert_success();
    let json: serde_json::Value = serde_json::from_str(&json.stdout).expect("one JSON value");
    let size = fs::metadata(wasm).expect("it is there").len();
    assert_eq!(json["size_bytes"].as_u64(), Some(size));
    assert_eq!(json["tables"][0]["name"], "counts");
    assert_eq!(json["tables"][0]["version"], 1);
    for fact in [&json["name"], &json["version"], &json["world"], &json["sha256"], &json["outputs"][0]] {
        let fact = fact.as_str().unwrap_or_else(|| panic!("{json}"));
        assert!(text.stdout.contains(fact), "'{fact}' is in the JSON alone:\n{}", text.stdout);
    }
    assert!(text.stdout.contains(&format!("{size} bytes")) && text.stdout.contains("counts"), "{}", text.stdout);
    for list in ["imports", "exports"] {
        let names = json[list].as_array().unwrap_or_else(|| panic!("{json}"));
        assert!(!names.is_empty(), "{json}");
        let missing = names.iter().find(|name| !text.stdout.contains(name.as_str().expect("a name")));
        assert_eq!(missing, None, "{}", text.stdout);
    }
}

#[test]
fn inspect_refuses_what_is_no_operator_and_says_what_it_is() {
    let folder = JobFolder::new();
    let whole = fs::read(operator("split")).expect("it was built");
    let patched = |from: &[u8], to: &[u8]| {
        let mut bytes = whole.clone();
        for start in 0..bytes.len() - from.len() {
            if bytes[start..].starts_with(from) {
                bytes[start..start + from.len()].copy_from_slice(to);
            }
        }
        assert_ne!(bytes, whole);
        bytes
    };
    let cases = [
        ("core.wasm", b"\0asm\x01\0\0\0".to_vec(), "core module"),
        ("empty-component.wasm", b"\0asm\x0d\0\x01\0".to_vec(), "not an operator"),
        ("old-world.wasm", patched(b"@0.1.0", b"@0.0.9"), "0.0.9"),
        ("other-world.wasm", patched(b"lockgate:operator", b"floodgate:operato"), "not an operator"),
        ("text.wasm", b"(module)".to_vec(), "not WebAssembly"),
        ("empty.wasm", Vec::new(), "empty"),
    ];
    for (name, bytes, says) in cases {
        folder.write(name, bytes);
        inspect(&folder.path(name), &[]).assert_refused(UNUSABLE, &[name, says]);
    }
    for part in 0..24 {
        folder.write("cut.wasm", &whole[..whole.len() * part / 24]);
        inspect(&folder.path("cut.wasm"), &[]).assert_refused(UNUSABLE, &["cut.wasm"]);
    }
    inspect(&folder.path("nowhere.wasm"), &[]).assert_refused(UNUSABLE, &["nowhere.wasm"]);
    inspect(&folder.path(""), &[]).assert_refused(UNUSABLE, &["not a file"]);
    let refused = inspect(&folder.path("core.wasm"), &["--json"]);
    let json: serde_json::Value = serde_json::from_str(&refused.stdout).expect("the error as JSON");
    assert_eq!(json["error"]["exit_code"], UNUSABLE, "{json}");
    assert!(json["error"]["help"].as_str().is_some_and(|help| help.contains("lockgate build")), "{json}");
}

#[test]
fn a_crate_that_makes_no_operator_is_named_and_leaves_no_file() {
    let folder = JobFolder::new();
    let dir = write_crate(&folder, "nothing-exported", "pub fn nothing() {}\n");
    let refused = Running::start(build(&dir)).wait();
    let messages = refused.stderr.replace(&folder.path("").display().to_string(), "");
    assert_eq!(refused.status.code(), Some(UNUSABLE), "{messages}");
    let error = messages.lines().find(|line| line.starts_with("error: ")).unwrap_or_else(|| panic!("{messages}"));
    assert!(error.contains("the crate 'nothing-exported' makes no operator"), "{messages}");
    assert!(messages.contains("help: ") && messages.contains("lockgate::export!"), "{messages}");
    assert!(!messages.contains(".tmp"), "a temporary file is nothing to tell of: {messages}");
    let files = fs::read_dir(&dir).expect("listed").map(|file| file.expect("listed").file_name());
    let wasm = files.filter(|name| name.to_string_lossy().contains("wasm")).collect::<Vec<_>>();
    assert!(wasm.is_empty(), "{wasm:?}");
}

#[test]
fn a_crate_that_cannot_be_built_is_told_from_a_folder_without_one() {
    let folder = JobFolder::new();
    let broken = write_crate(&folder, "broken", "this is no Rust\n");
    let failed = Running::start(build(&broken)).wait();
    assert_eq!(failed.status.code(), Some(FAILED), "{}", failed.stderr);
    assert!(failed.stderr.contains("error: cargo could not build 'broken'"), "{}", failed.stderr);
    assert!(failed.stderr.contains("help: correct what cargo reports above"), "{}", failed.stderr);

    folder.create_dir("bare");
    Running::start(build(&folder.path("bare"))).wait().assert_refused(UNUSABLE, &["bare", "lockgate new"]);
    let library = write_crate(&folder, "plain-library", "");
    let manifest = fs::read_to_string(library.join("Cargo.toml")).expect("written");
    folder.write("plain-library/Cargo.toml", manifest.replace("cdylib", "rlib"));
    Running::start(build(&library)).wait().assert_refused(UNUSABLE, &["plain-library", "crate-type = [\"cdylib\""]);
}

#[test]
fn a_compiler_without_the_target_is_named_with_the_command_that_adds_it() {
    let folder = JobFolder::new();
    let dir = write_crate(&folder, "any", "");
    folder.write(
        "rustc",
        "#!/bin/sh\ncase \"$*\" in *target-libdir*) echo /nowhere/lib ;; *) echo 'rustc 1.95.0' ;; esac\n",
    );
    let rustc = folder.path("rustc");
    fs::set_permissions(&rustc, fs::Permissions::from_mode(0o755)).expect("the file is ours");
    let mut build = build(&dir);
    build.env("LOCKGATE_RUSTC", &rustc);
    let shown = rustc.display().to_string();
    Running::start(build).wait().assert_refused(FAILED, &[&shown, "rustup target add wasm32-unknown-unknown"]);
}

#[test]
fn an_operator_that_panics_when_it_is_asked_what_it_is_says_why() {
    let folder = JobFolder::new();
    let made = new_operator(&folder, "shy");
    let library = "use lockgate::prelude::*;\npub struct Shy;\nimpl Operator for Shy {\n    fn new(_: &mut Declaration) -> Shy {\n        \
                   panic!(\"no table today\")\n    }\n    fn process(&mut self, _: Record<'_>, _: &mut Context<'_>) -> Result<(), \
                   Error> {\n        Ok(())\n    }\n}\nlockgate::export!(Shy);\n";
    folder.write("shy/src/lib.rs", library);
    let built = Running::start(build(&made)).wait();
    built.assert_refused(UNUSABLE, &["the crate 'shy' makes no operator", "panicked", "no table today"]);
}
