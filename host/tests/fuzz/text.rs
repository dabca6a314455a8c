//! What an error has to be like for those who read it.

/// Longer ones are no good to anybody.
const BYTES_MAX: usize = 64 << 10;

/// Whether a text says something, and not without end. That nothing in it orders a terminal about is for those to see to who
/// print it.
pub fn check(text: &str) -> Result<(), String> {
    if text.is_empty() || text.len() > BYTES_MAX { Err(format!("an error has {} bytes", text.len())) } else { Ok(()) }
}

/// The same for what goes to logs and dead letters as it is.
pub fn check_printable(text: &str) -> Result<(), String> {
    check(text)?;
    match text.chars().find(|c| c.is_control() && !matches!(c, '\t' | '\n')) {
        Some(control) => Err(format!("an error has the control character {control:?}: {text:?}")),
        None => Ok(()),
    }
}

/// An error with all its causes.
pub fn check_error(error: &dyn std::error::Error) -> Result<(), String> {
    let mut cause = Some(error);
    while let Some(error) = cause {
        check(&error.to_string())?;
        cause = error.source();
    }
    Ok(())
}
