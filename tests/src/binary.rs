//! The programs under test: the `lockgate` binary of this checkout, and operators compiled to Wasm by it.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{LazyLock, Mutex};

/// The root of this checkout.
pub fn repository() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the tests are in a folder of the repository")
}

/// The binary: that of `LOCKGATE_BIN`, else one that is built from this checkout before the first use.
///
/// # Panics
/// If it doesn't build.
pub fn lockgate() -> &'static Path {
    static BINARY: LazyLock<PathBuf> = LazyLock::new(|| {
        if let Some(binary) = std::env::var_os("LOCKGATE_BIN") {
            return PathBuf::from(binary);
        }
        // All scripts select the whole workspace: another selection means other features, and RocksDB built once more.
        let status = Command::new(env!("CARGO"))
            .args(["build", "--quiet", "--workspace", "--bin", "lockgate"])
            .current_dir(repository())
            .env("CARGO_TARGET_DIR", target_dir())
            .status()
            .expect("cargo starts");
        assert!(status.success(), "the lockgate binary must build");
        profile_dir().join("lockgate")
    });
    &BINARY
}

/// An example operator as a component, built before the first use.
///
/// # Panics
/// If it doesn't build.
pub fn operator(name: &str) -> PathBuf {
    static BUILT: Mutex<Vec<(String, PathBuf)>> = Mutex::new(Vec::new());
    let mut built = BUILT.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    if let Some((_, path)) = built.iter().find(|(known, _)| known == name) {
        return path.clone();
    }
    let path = build_operator(&repository().join("examples").join(name), name);
    built.push((name.to_owned(), path.clone()));
    path
}

/// One of the operators of a crate (its folder is below the repository's root) that holds several by feature, built before the
/// first use.
///
/// # Panics
/// If it doesn't build.
pub fn operator_of(crate_folder: &str, feature: &str) -> PathBuf {
    static BUILT: Mutex<Vec<(String, PathBuf)>> = Mutex::new(Vec::new());
    let mut built = BUILT.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    let name = format!("{}-{feature}", crate_folder.replace('/', "-"));
    if let Some((_, path)) = built.iter().find(|(known, _)| *known == name) {
        return path.clone();
    }
    let path = build_with(&repository().join(crate_folder), &["--features", feature], &name);
    built.push((name, path.clone()));
    path
}

/// The operator that does wrong when a record tells it to, built before the first use.
///
/// # Panics
/// If it doesn't build.
pub fn faulty() -> PathBuf {
    static BUILT: LazyLock<PathBuf> = LazyLock::new(|| build_operator(&repository().join("tests/faulty"), "faulty"));
    BUILT.clone()
}

/// Compiles the operator crate in `folder` with `lockgate build`; gives the component's path.
///
/// # Panics
/// If it doesn't build.
pub fn build_operator(folder: &Path, name: &str) -> PathBuf {
    build_with(folder, &[], name)
}

fn build_with(folder: &Path, arguments: &[&str], name: &str) -> PathBuf {
    let wasm_dir = profile_dir().join("test-operators");
    std::fs::create_dir_all(&wasm_dir).expect("the target folder is writable");
    // Other test programs may be reading the last one: write beside it, then rename.
    let fresh = wasm_dir.join(format!("{name}-{}.wasm", std::process::id()));
    let path = wasm_dir.join(format!("{name}.wasm"));
    let output = Command::new(lockgate())
        .arg("build")
        .arg(folder)
        .args(arguments)
        .arg("--out")
        .arg(&fresh)
        .env("CARGO_TARGET_DIR", target_dir())
        .output()
        .expect("lockgate starts");
    assert!(output.status.success(), "lockgate build {name}: {}", String::from_utf8_lossy(&output.stderr));
    std::fs::rename(&fresh, &path).expect("the built component can be renamed");
    path
}

/// `target/debug`, of which test programs are in `deps`, and other programs at its top.
pub(crate) fn profile_dir() -> PathBuf {
    let program = std::env::current_exe().expect("a program knows its path");
    let folder = program.parent().expect("a program is in a folder");
    let folder = if folder.ends_with("deps") { folder.parent().expect("deps is in a folder") } else { folder };
    folder.to_owned()
}

/// The target folder that this test program was built in.
pub fn target_dir() -> PathBuf {
    profile_dir().parent().expect("a profile's folder is in the target folder").to_owned()
}

/// A copy of a component that does the same and has another hash: it has a custom section more.
///
/// # Panics
/// If it can't be read or written.
pub fn same_with_other_hash(component: &Path, to: &Path, text: &str) {
    assert!(text.len() < 100, "its length is one byte of LEB128");
    let mut bytes = std::fs::read(component).expect("the component is there");
    let name = "note";
    bytes.push(0);
    bytes.push((1 + name.len() + text.len()) as u8);
    bytes.push(name.len() as u8);
    bytes.extend_from_slice(name.as_bytes());
    bytes.extend_from_slice(text.as_bytes());
    std::fs::write(to, bytes).expect("a writable folder");
}
