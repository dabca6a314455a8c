//! Writing to standard output and error.
//!
//! Invariant: a reader that has gone away (`lockgate check job.toml | head -1`) is no error and no panic; and nothing that a file, a
//! component or a daemon says can order the terminal about.

use std::borrow::Cow;
use std::io::{ErrorKind, Write};

use crate::cli::CliError;

/// Writes text to standard output, all of it or with an error.
///
/// # Errors
/// If it can't be written, as to a full disk.
pub fn out(text: &str) -> Result<(), CliError> {
    let mut stdout = std::io::stdout().lock();
    match stdout.write_all(harmless(text).as_bytes()).and_then(|()| stdout.flush()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            Err(CliError::failed("cannot write to standard output").caused_by(&error))
        }
        Ok(()) | Err(_) => Ok(()),
    }
}

/// Writes text to standard error, if anybody reads it.
pub fn err(text: &str) {
    let _ = std::io::stderr().lock().write_all(harmless(text).as_bytes());
}

/// Writes control characters but line feeds and tabs in a way that shows them, and that is the same character in JSON.
fn harmless(text: &str) -> Cow<'_, str> {
    let is_harmful = |c: char| c.is_control() && !matches!(c, '\n' | '\t');
    if !text.contains(is_harmful) {
        return Cow::Borrowed(text);
    }
    let shown = |c: char| if is_harmful(c) { format!("\\u{:04x}", u32::from(c)) } else { c.to_string() };
    text.chars().map(shown).collect::<String>().into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_are_shown_and_json_is_still_what_it_was() {
        assert_eq!(harmless("a\tb\n'é'"), "a\tb\n'é'");
        assert_eq!(harmless("\u{1b}[2J\r\u{9b}2J\u{7f}"), "\\u001b[2J\\u000d\\u009b2J\\u007f");
        let json = serde_json::json!({ "name": "\u{1b}[2J\u{9b}\u{7f}\n" });
        let printed = harmless(&json.to_string()).into_owned();
        assert_eq!(serde_json::from_str::<serde_json::Value>(&printed).expect("JSON"), json);
        assert!(!printed.contains(char::is_control), "{printed:?}");
    }
}
