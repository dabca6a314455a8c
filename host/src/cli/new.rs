//! `lockgate new`: a crate with an operator that builds and whose test passes.
//!
//! Invariant: nothing that was there before is changed.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use crate::cli::{CliError, print};

/// The files of a new crate. In the manifest two names are replaced; the SDK's tests compile the rest as it is.
const TEMPLATE: [(&str, &str); 3] = [
    ("Cargo.toml", include_str!("template/Cargo.toml")),
    ("src/lib.rs", include_str!("template/src/lib.rs")),
    (".gitignore", "/target\n*.wasm\n"),
];
const NAME_HOLE: &str = "OPERATOR_NAME";
/// With its quotes, because a path may need more than quotes around it.
const SDK_HOLE: &str = "\"LOCKGATE_SDK\"";

/// Where the SDK was when this binary was built; it isn't on crates.io.
const SDK_AT_BUILD: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../guest-sdk");
/// Names the SDK for a program that was moved to another machine.
const SDK_VARIABLE: &str = "LOCKGATE_SDK";

/// Make a new operator crate that builds, with a test that passes
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  lockgate new my-op
  lockgate new my-op --path operators/mine --sdk ~/lockgate/guest-sdk

Without --sdk, the SDK is the folder that the environment variable LOCKGATE_SDK names; else `guest-sdk` of the Lockgate
repository that the new crate is in; else the one that this program was built from

Exit codes: 0 made; 1 it could not be written; 2 the name, folder or SDK can't be used")]
pub struct Args {
    /// The crate's name: letters, digits, '-' and '_', starting with a letter
    #[arg(value_name = "NAME")]
    pub name: String,
    /// The folder to make [default: the name]
    #[arg(long, value_name = "DIR")]
    pub path: Option<PathBuf>,
    /// The folder of the `lockgate` SDK: `guest-sdk` of Lockgate's repository
    #[arg(long, value_name = "DIR")]
    pub sdk: Option<PathBuf>,
}

/// # Errors
/// If the name can't be that of a crate, the folder is in use, or there is no SDK.
pub fn run(args: &Args) -> Result<(), CliError> {
    check_name(&args.name)?;
    let dir = args.path.clone().unwrap_or_else(|| PathBuf::from(&args.name));
    let variable = std::env::var_os(SDK_VARIABLE).filter(|value| !value.is_empty()).map(PathBuf::from);
    let sdk = match (&args.sdk, &variable) {
        (Some(sdk), _) => named_sdk(sdk, "--sdk")?,
        (None, Some(sdk)) => named_sdk(sdk, SDK_VARIABLE)?,
        (None, None) => sdk_of_repository(&dir).map_or_else(|| sdk_at_build(Path::new(SDK_AT_BUILD)), Ok)?,
    };
    create(&dir, &args.name, &sdk)?;
    let dir = dir.display();
    print::out(&format!("made {dir}\n  test it    cd {dir} && cargo test\n  build it   lockgate build {dir}\n"))
}

/// Cargo's rules for names, and those of Rust, where the name becomes that of a library.
fn check_name(name: &str) -> Result<(), CliError> {
    const TAKEN: [&str; 12] = [
        "lockgate",
        "core",
        "std",
        "alloc",
        "proc_macro",
        "test",
        "build",
        "deps",
        "examples",
        "incremental",
        "con",
        "nul",
    ];
    const KEYWORDS: [&str; 51] = [
        "abstract", "as", "async", "await", "become", "box", "break", "const", "continue", "crate", "do", "dyn",
        "else", "enum", "extern", "false", "final", "fn", "for", "gen", "if", "impl", "in", "let", "loop", "macro",
        "match", "mod", "move", "mut", "override", "priv", "pub", "ref", "return", "self", "static", "struct", "super",
        "trait", "true", "try", "type", "typeof", "unsafe", "unsized", "use", "virtual", "where", "while", "yield",
    ];
    let allowed = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    let well_formed =
        name.len() <= 64 && name.starts_with(|c: char| c.is_ascii_alphabetic()) && name.chars().all(allowed);
    let library = name.replace('-', "_").to_ascii_lowercase();
    if well_formed && !TAKEN.contains(&library.as_str()) && !KEYWORDS.contains(&library.as_str()) {
        return Ok(());
    }
    let reason =
        if well_formed { "it has a meaning of its own in Rust or cargo" } else { "it isn't a name for a crate" };
    Err(CliError::unusable(format!("cannot name a crate '{}': {reason}", name.escape_debug()))
        .help("take up to 64 letters, digits, '-' and '_', starting with a letter: lockgate new word-split"))
}

/// The folder of the SDK, absolute, if it is there.
fn sdk_in(folder: &Path) -> Option<PathBuf> {
    let manifest = fs::read_to_string(folder.join("Cargo.toml")).ok()?.parse::<toml::Table>().ok()?;
    let is_sdk = manifest.get("package").and_then(|package| package.get("name")?.as_str()) == Some("lockgate");
    is_sdk.then(|| folder.canonicalize().ok())?
}

/// The SDK that the user has named.
fn named_sdk(folder: &Path, by: &str) -> Result<PathBuf, CliError> {
    sdk_in(folder).ok_or_else(|| {
        CliError::unusable(format!("there is no `lockgate` SDK in {}, which {by} names", folder.display()))
            .help("name the folder `guest-sdk` of Lockgate's repository")
    })
}

/// The SDK of the repository that a crate is to be made in.
fn sdk_of_repository(dir: &Path) -> Option<PathBuf> {
    let dir = std::path::absolute(dir).ok()?;
    dir.ancestors().skip(1).find_map(|folder| sdk_in(&folder.join("guest-sdk")))
}

fn sdk_at_build(folder: &Path) -> Result<PathBuf, CliError> {
    sdk_in(folder).ok_or_else(|| {
        CliError::unusable(format!(
            "there is no `lockgate` SDK here: this program was built from {}, which is gone",
            folder.display()
        ))
        .help(format!(
            "get Lockgate's repository and name its folder `guest-sdk`: lockgate new --sdk DIR NAME, or {SDK_VARIABLE}=DIR in the \
             environment"
        ))
    })
}

fn create(dir: &Path, name: &str, sdk: &Path) -> Result<(), CliError> {
    let failed = |path: &Path, error: std::io::Error| {
        CliError::failed(format!("cannot write {}", path.display()))
            .caused_by(&error)
            .help("check the folder's permissions and the space on the disk")
    };
    let is_empty = match fs::read_dir(dir) {
        Ok(mut entries) => entries.next().is_none(),
        Err(error) if error.kind() == ErrorKind::NotFound => true,
        Err(error) => return Err(failed(dir, error)),
    };
    if !is_empty {
        return Err(CliError::unusable(format!("{} exists and isn't empty", dir.display()))
            .help("take another name, or another folder with --path"));
    }
    fs::create_dir_all(dir).map_err(|error| failed(dir, error))?;
    let named = sdk_from(&dir.canonicalize().map_err(|error| failed(dir, error))?, sdk);
    // A path with a quote or a backslash would break the manifest otherwise.
    let named = toml::Value::from(named.to_string_lossy().into_owned()).to_string();
    for (file, template) in TEMPLATE {
        let path = dir.join(file);
        fs::create_dir_all(path.parent().unwrap_or(dir)).map_err(|error| failed(&path, error))?;
        fs::write(&path, template.replace(NAME_HOLE, name).replace(SDK_HOLE, &named))
            .map_err(|error| failed(&path, error))?;
    }
    // With the versions that the SDK was built with, which are on this machine, cargo needs no network. It drops the rest.
    let versions = sdk.parent().unwrap_or(sdk).join("Cargo.lock");
    if versions.is_file() {
        let path = dir.join("Cargo.lock");
        fs::copy(&versions, &path).map_err(|error| failed(&path, error))?;
    }
    Ok(())
}

/// How a crate in `dir` names the SDK: relative if both are in Lockgate's repository, which may be moved as a whole; else by its
/// whole path, since the crate may be moved alone. Both are absolute.
fn sdk_from(dir: &Path, sdk: &Path) -> PathBuf {
    let repository = sdk.parent().filter(|parent| parent.join("wit/operator.wit").is_file());
    let below = repository.and_then(|repository| dir.strip_prefix(repository).ok());
    match (below, sdk.file_name()) {
        (Some(below), Some(name)) => below.iter().map(|_| "..").collect::<PathBuf>().join(name),
        (Some(_) | None, _) => sdk.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_cargo_or_rust_refuse_are_refused() {
        for name in ["word-split", "a", "w2_x", "Caps"] {
            check_name(name).expect(name);
        }
        let long = "a".repeat(65);
        for name in ["", "2nd", "-x", "_x", "a b", "a/b", "..", "é", "fn", "Self", "test", "core", "lockgate", &long] {
            let error = check_name(name).expect_err(name).to_string();
            assert!(error.contains("help: "), "{error}");
        }
    }

    #[test]
    fn a_folder_in_use_is_left_alone() {
        let folder = tempfile::tempdir().expect("a folder");
        fs::write(folder.path().join("mine"), "").expect("written");
        let error = create(folder.path(), "op", Path::new("/sdk")).expect_err("in use").to_string();
        assert!(error.contains("isn't empty"), "{error}");
        assert_eq!(fs::read_dir(folder.path()).expect("listed").count(), 1);
    }

    #[test]
    fn a_missing_sdk_is_told_with_the_ways_to_name_it() {
        let error = sdk_at_build(Path::new("/nowhere/sdk")).expect_err("none").to_string();
        assert!(["/nowhere/sdk", "--sdk", SDK_VARIABLE].iter().all(|word| error.contains(word)), "{error}");
        let error = named_sdk(Path::new("/nowhere/sdk"), SDK_VARIABLE).expect_err("none").to_string();
        assert!(error.contains("/nowhere/sdk, which LOCKGATE_SDK names"), "{error}");
    }

    #[test]
    fn the_sdk_is_that_of_the_repository_around_the_crate_and_nothing_else_of_that_name() {
        let folder = tempfile::tempdir().expect("a folder");
        let sdk = folder.path().join("guest-sdk");
        fs::create_dir(&sdk).expect("made");
        let near = folder.path().join("ops/mine");
        fs::write(sdk.join("Cargo.toml"), "[package]\nname = 'other'\n").expect("written");
        assert_eq!(sdk_of_repository(&near), None);
        fs::write(sdk.join("Cargo.toml"), "[package]\nname = 'lockgate'\n").expect("written");
        assert_eq!(sdk_of_repository(&near), sdk.canonicalize().ok());
    }

    #[test]
    fn the_sdk_is_named_relative_within_its_repository_and_whole_from_elsewhere() {
        let folder = tempfile::tempdir().expect("a folder");
        let root = folder.path().canonicalize().expect("there");
        let (sdk, near, far) = (root.join("lockgate/guest-sdk"), root.join("lockgate/ops/mine"), root.join("mine"));
        fs::create_dir_all(root.join("lockgate/wit")).expect("made");
        fs::write(root.join("lockgate/wit/operator.wit"), "").expect("written");
        assert_eq!(sdk_from(&near, &sdk), Path::new("../../guest-sdk"));
        assert_eq!(sdk_from(&far, &sdk), sdk);
        fs::remove_file(root.join("lockgate/wit/operator.wit")).expect("removed");
        assert_eq!(sdk_from(&near, &sdk), sdk, "no repository of Lockgate");
    }

    #[test]
    fn a_new_crate_has_no_hole_left_in_it() {
        let folder = tempfile::tempdir().expect("a folder");
        let dir = folder.path().join("word-split");
        create(&dir, "word-split", Path::new("/a \"quoted\" sdk")).expect("made");
        for (file, _) in TEMPLATE {
            let text = fs::read_to_string(dir.join(file)).expect("written");
            assert!(!text.contains("OPERATOR_NAME") && !text.contains("LOCKGATE_SDK"), "{file}: {text}");
        }
        let manifest = fs::read_to_string(dir.join("Cargo.toml")).expect("written");
        let manifest: toml::Table = manifest.parse().expect("TOML");
        assert_eq!(manifest["dependencies"]["lockgate"]["path"].as_str(), Some("/a \"quoted\" sdk"));
        assert_eq!(manifest["package"]["name"].as_str(), Some("word-split"));
    }
}
