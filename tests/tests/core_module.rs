//! `lockgate build CORE.wasm`: a component of what another toolchain has linked.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use lockgate_tests::{Finished, JobFolder, Running, lockgate, operator, target_dir};

const UNUSABLE: i32 = 2;

fn build(module: &Path, options: &[&str]) -> Finished {
    let mut command = Command::new(lockgate());
    command.arg("build").arg(module).args(options);
    Running::start(command).wait()
}

/// A core module of an operator, as rustc has linked it, and the component that was made of it.
fn count() -> (PathBuf, PathBuf) {
    let component = operator("count");
    let module = target_dir().join("wasm32-unknown-unknown/release/lockgate_example_count.wasm");
    (module, component)
}

#[test]
fn a_core_module_with_a_world_becomes_the_same_component_as_its_crate() {
    let folder = JobFolder::new();
    let (module, component) = count();
    fs::copy(&module, folder.path("my.core.wasm")).expect("the folder is writable");
    let built = build(&folder.path("my.core.wasm"), &[]);
    built.assert_success();
    assert!(built.stdout.starts_with(&format!("built {}", folder.path("my.wasm").display())), "{}", built.stdout);
    assert_eq!(fs::read(folder.path("my.wasm")).expect("it was built"), fs::read(component).expect("it was built"));
    let out = folder.path("elsewhere/it.wasm");
    let json = build(&module, &["--json", "--out", out.to_str().expect("a path in UTF-8")]);
    json.assert_success();
    let json: serde_json::Value = serde_json::from_str(&json.stdout).expect("one JSON value");
    assert_eq!(json["tables"][0]["name"], "counts");
    assert!(out.is_file());
}

#[test]
fn what_is_no_operators_module_is_refused_by_name_and_leaves_no_file() {
    let folder = JobFolder::new();
    let (module, component) = count();
    let whole = fs::read(&module).expect("it was built");
    let with_world = |module: &[u8]| {
        let name = b"component-type:nonsense";
        let size = u8::try_from(name.len()).expect("a short name");
        [module, &[0, size + 3, size], name, b"\xff\xff"].concat()
    };
    let cases: [(&str, Vec<u8>, &str); 7] = [
        ("text", b"(module)".to_vec(), "is no WebAssembly module"),
        ("empty", Vec::new(), "is no WebAssembly module"),
        ("no-world", b"\0asm\x01\0\0\0".to_vec(), "doesn't say for which world it is"),
        ("bad-world", with_world(b"\0asm\x01\0\0\0"), "makes no operator"),
        ("cut", whole[..whole.len() / 2].to_vec(), "is no WebAssembly module"),
        ("component", fs::read(component).expect("it was built"), "is a component already"),
        ("exports-nothing", exports_nothing(&whole), "makes no operator"),
    ];
    for (name, bytes, says) in cases {
        let path = format!("{name}.core.wasm");
        folder.write(&path, bytes);
        build(&folder.path(&path), &[]).assert_refused(UNUSABLE, &[&path, says]);
        assert!(!folder.path(format!("{name}.wasm")).exists(), "{name} leaves a file");
    }
    build(&module, &["--features", "a"]).assert_refused(UNUSABLE, &["--features", "lockgate_example_count.wasm"]);
    build(&folder.path("nowhere.wasm"), &[]).assert_refused(UNUSABLE, &["nowhere.wasm"]);
}

/// The module with names that nothing looks for in the place of its exports.
fn exports_nothing(module: &[u8]) -> Vec<u8> {
    let mut bytes = module.to_vec();
    let name = b"lockgate:operator/operator@0.1.0#process";
    let places = (0..bytes.len() - name.len()).filter(|&at| module[at..].starts_with(name)).collect::<Vec<_>>();
    assert!(!places.is_empty(), "the module exports it");
    for at in places {
        bytes[at..at + 8].copy_from_slice(b"padlocks");
    }
    bytes
}
