//! `.ci/setup.sh` on machines that lack something.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use lockgate_tests::kafka::kafka_missing;
use lockgate_tests::{repository, skipped};

const TARGET_LIBRARY: &str = "lib/rustlib/wasm32-unknown-unknown/lib";

fn set_up(parts: &[&str], environment: &[(&str, &Path)]) -> Output {
    let mut command = Command::new("/bin/bash");
    command.arg(repository().join(".ci/setup.sh")).args(parts);
    // What cargo tells its tests would choose a toolchain; the script is to look for itself.
    command.env_remove("RUSTUP_TOOLCHAIN").envs(environment.iter().copied());
    command.output().expect("bash starts")
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// A folder of programs that is all of PATH besides the system's own tools.
fn programs(rustc: Option<&str>) -> tempfile::TempDir {
    let folder = tempfile::tempdir().expect("a temporary folder");
    for tool in ["bash", "cut", "sort", "head", "dirname", "realpath", "sed"] {
        let places = ["/usr/bin", "/bin"].map(|place| Path::new(place).join(tool));
        let place = places.iter().find(|place| place.exists()).expect("every system has it");
        symlink(place, folder.path().join(tool)).expect("the folder is writable");
    }
    if let Some(script) = rustc {
        for name in ["rustc", "cargo"] {
            add_program(folder.path(), name, script);
        }
    }
    folder
}

fn add_program(folder: &Path, name: &str, script: &str) {
    let path = folder.join(name);
    fs::write(&path, format!("#!/bin/bash\n{script}\n")).expect("the folder is writable");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("the file is ours");
}

#[test]
fn a_machine_without_rust_is_told_how_to_get_it() {
    let (path, home) = (programs(None), tempfile::tempdir().expect("a temporary folder"));
    let output = set_up(&["host"], &[("PATH", path.path()), ("CARGO_HOME", home.path()), ("HOME", home.path())]);
    let messages = stderr(&output);
    assert!(!output.status.success(), "{messages}");
    assert!(
        messages.contains("error: there is no Rust here") && messages.contains("https://sh.rustup.rs"),
        "{messages}"
    );
}

#[test]
fn a_machine_with_an_old_rust_is_told_to_update_it() {
    let path = programs(Some("echo 'rustc 1.94.1 (abc 2026-01-01)'"));
    let output = set_up(&["host"], &[("PATH", path.path())]);
    let messages = stderr(&output);
    assert!(!output.status.success(), "{messages}");
    assert!(messages.contains("error: Rust 1.94.1 is too old") && messages.contains("rustup update"), "{messages}");
}

#[test]
fn a_machine_with_llvms_libraries_but_without_libclang_gets_it() {
    let path = programs(Some("echo 'rustc 1.95.0 (abc 2026-01-01)'"));
    let libraries = tempfile::tempdir().expect("a temporary folder");
    let needs = |library: &str| {
        fs::write(libraries.path().join(library), "").expect("the folder is ours");
        let output = set_up(&["host"], &[("PATH", path.path()), ("LOCKGATE_LIBCLANG_DIRS", libraries.path())]);
        // There is no compiler in this PATH, and nothing to install one with.
        assert!(!output.status.success() && stderr(&output).contains("this needs g++"), "{}", stderr(&output));
        stderr(&output).contains("libclang-dev")
    };
    assert!(needs("libclang-cpp.so.14"), "that is another library");
    assert!(!needs("libclang-14.so.1"));
}

#[test]
fn a_machine_without_openssl_or_zlib_gets_them() {
    let path = programs(Some("echo 'rustc 1.95.0 (abc 2026-01-01)'"));
    let needs_them = |answer: &str| {
        add_program(path.path(), "pkg-config", answer);
        let output = set_up(&["host"], &[("PATH", path.path())]);
        // There is no compiler in this PATH, and nothing to install one with.
        assert!(!output.status.success() && stderr(&output).contains("this needs g++"), "{}", stderr(&output));
        ["libssl-dev", "zlib1g-dev"].map(|package| stderr(&output).contains(package))
    };
    assert_eq!(needs_them("exit 1"), [true, true]);
    assert_eq!(needs_them("[ $2 = zlib ]"), [true, false]);
}

#[test]
fn a_machine_with_an_old_java_gets_a_newer_one() {
    let (path, no_javas) = (programs(None), tempfile::tempdir().expect("a temporary folder"));
    let needs_java = |version: &str| {
        add_program(path.path(), "java", &format!("echo 'openjdk version \"{version}\" 2026-01-01' >&2"));
        let nowhere = [("LOCKGATE_JVM_DIR", no_javas.path()), ("JAVA_HOME", no_javas.path())];
        let output = set_up(&["kafka"], &[[("PATH", path.path())].as_slice(), &nowhere].concat());
        // There is no Maven in this PATH, and nothing to install it with.
        assert!(!output.status.success() && stderr(&output).contains("maven"), "{}", stderr(&output));
        stderr(&output).contains("default-jre-headless")
    };
    assert!(needs_java("1.8.0_392") && needs_java("11.0.28"));
    assert!(!needs_java("17.0.15") && !needs_java("25"));
}

#[test]
fn a_machine_with_an_old_node_is_told_to_get_a_newer_one() {
    let path = programs(None);
    add_program(path.path(), "npm", "exit 1");
    let told = |version: &str| {
        add_program(path.path(), "node", &format!("echo {version}"));
        let output =
            set_up(&["javascript"], &[("PATH", path.path()), ("CARGO_TARGET_DIR", Path::new("/proc/nowhere/target"))]);
        assert!(!output.status.success(), "nothing can be put there: {}", stderr(&output));
        stderr(&output)
    };
    assert!(told("v18.20.4").contains("Node.js 18.20.4 is too old"));
    assert!(!told("v20.0.0").contains("too old"));
}

#[test]
fn a_machine_without_clang_for_wasm_gets_it() {
    let path = programs(None);
    let output = set_up(&["c"], &[("PATH", path.path())]);
    // There is nothing to install it with in this PATH.
    assert!(!output.status.success() && stderr(&output).contains("this needs clang-19 lld-19"), "{}", stderr(&output));
}

#[test]
fn a_machine_that_has_everything_is_left_alone_at_once() {
    let mut parts = vec!["host", "wasm", "lint"];
    if !kafka_missing("finding Kafka installed") {
        parts.push("kafka");
    }
    let first = set_up(&parts, &[]);
    assert!(first.status.success(), "{}", stderr(&first));
    let start = Instant::now();
    let second = set_up(&parts, &[]);
    assert!(second.status.success() && second.stdout.is_empty() && second.stderr.is_empty(), "{}", stderr(&second));
    assert!(start.elapsed() < Duration::from_secs(10), "took {:?}", start.elapsed());
}

#[test]
fn without_rustups_server_the_wasm_library_is_built_from_the_systems_packages() {
    if !Path::new("/usr/bin/apt-get").exists() {
        return skipped("building the Wasm library from packages", "this system has no apt-get");
    }
    let sysroot = tempfile::tempdir().expect("a temporary folder");
    let library = sysroot.path().join(TARGET_LIBRARY);
    let dead_server = Path::new("http://127.0.0.1:9");
    let environment = [("LOCKGATE_WASM_STD_DIR", library.as_path()), ("RUSTUP_DIST_SERVER", dead_server)];
    let output = set_up(&["wasm"], &environment);
    assert!(output.status.success(), "{}", stderr(&output));
    assert!(stderr(&output).contains("building Rust's standard library"), "{}", stderr(&output));

    // The compiler itself isn't moved: only what it looks for.
    let system = Command::new("/usr/bin/rustc").args(["--print", "sysroot"]).output().expect("set-up installed it");
    let system = String::from_utf8(system.stdout).expect("a path in ASCII");
    let host_library = Path::new(system.trim()).join("lib/rustlib/x86_64-unknown-linux-gnu");
    if host_library.exists() {
        symlink(host_library, sysroot.path().join("lib/rustlib/x86_64-unknown-linux-gnu")).expect("the folder is ours");
    }
    let source = sysroot.path().join("operator.rs");
    fs::write(&source, "#[unsafe(no_mangle)] pub extern \"C\" fn f(n: usize) -> usize { vec![n; n].len() }")
        .expect("writable");
    let compiled = Command::new("/usr/bin/rustc")
        .args([
            "--edition=2024",
            "-O",
            "-Clto=fat",
            "--crate-type=staticlib",
            "--target=wasm32-unknown-unknown",
            "--sysroot",
        ])
        .arg(sysroot.path())
        .arg("-o")
        .arg(sysroot.path().join("operator.a"))
        .arg(&source)
        .output()
        .expect("rustc starts");
    assert!(compiled.status.success(), "{}", stderr(&compiled));

    let again = set_up(&["wasm"], &environment);
    assert!(again.status.success() && again.stderr.is_empty(), "a second run has nothing to do: {}", stderr(&again));
}
