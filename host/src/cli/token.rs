//! The token that a daemon asks for and a client names: from a file, or from the environment.
//!
//! Invariant: a token is no argument of a command line, where every process of the machine could read it.

use std::fs::File;
use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use crate::api::Token;
use crate::cli::{CliError, print};

pub(super) const VARIABLE: &str = "LOCKGATE_TOKEN";
/// Longer files hold something else.
const FILE_BYTES_MAX: u64 = 4_096;
/// Group and others.
const OTHERS: u32 = 0o077;

/// The token of the file, else that of `LOCKGATE_TOKEN`, if there is one.
///
/// # Errors
/// If the file can't be read, or what was given is no token.
pub(super) fn token(file: Option<&Path>) -> Result<Option<String>, CliError> {
    let (text, from) = match file {
        Some(path) => (read(path)?, format!("the token of {}", path.display())),
        None => match std::env::var(VARIABLE) {
            Ok(text) if !text.is_empty() => (text, format!("the token of {VARIABLE}")),
            Ok(_) | Err(std::env::VarError::NotPresent) => return Ok(None),
            Err(error) => return Err(CliError::unusable(format!("{VARIABLE} is no token")).caused_by(&error)),
        },
    };
    let refused = |error| {
        let refused = CliError::unusable(format!("{from} can't be used")).caused_by(&error);
        refused.help("make one with: openssl rand -hex 32")
    };
    Token::new(&text).map_err(refused)?;
    Ok(Some(text))
}

/// The text of a file without the line end at its end.
fn read(path: &Path) -> Result<String, CliError> {
    let refused = |error: &dyn std::error::Error| {
        let refused = CliError::unusable(format!("cannot read the token file {}", path.display())).caused_by(error);
        refused.help("name a file with nothing in it but the token")
    };
    let mut file = File::open(path).map_err(|error| refused(&error))?;
    let mode = file.metadata().map_err(|error| refused(&error))?.permissions().mode();
    if mode & OTHERS != 0 {
        print::err(&format!("warning: others can read {}; run: chmod 600 {0}\n", path.display()));
    }
    let mut text = String::new();
    Read::by_ref(&mut file).take(FILE_BYTES_MAX).read_to_string(&mut text).map_err(|error| refused(&error))?;
    let end = text.trim_end_matches(['\n', '\r']).len();
    text.truncate(end);
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_file_may_end_with_a_line_end_and_holds_nothing_else() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("token");
        let given = |text: &str| {
            std::fs::write(&path, text).expect("a file");
            token(Some(&path))
        };
        assert_eq!(given("0123456789abcdef\n").expect("a token").as_deref(), Some("0123456789abcdef"));
        for bad in ["", "short\n", "0123456789abcdef\n0123456789abcdef\n", &"x".repeat(5_000)] {
            let error = given(bad).expect_err("no token").to_string();
            assert!(error.contains("openssl rand") && error.contains("token of"), "{error}");
        }
        let error = token(Some(&folder.path().join("missing"))).expect_err("no file").to_string();
        assert!(error.contains("missing") && error.contains("help: "), "{error}");
    }
}
