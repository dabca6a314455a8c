//! Text from outside, made fit for a log line or an error.
//!
//! Invariant: no control character but a tab comes out, so that a text can't break a line, fake another or move the cursor. All
//! else stays as it is: who shows the line may have to quote it again.

/// The beginning of a text, of so many bytes at most.
pub fn printable(text: &str, bytes_max: usize) -> String {
    let cut = text.floor_char_boundary(bytes_max);
    let mut line = String::with_capacity(cut);
    for c in text[..cut].chars() {
        if c.is_control() && c != '\t' { line.extend(c.escape_default()) } else { line.push(c) }
    }
    if cut < text.len() {
        line.push('…');
    }
    line
}

#[cfg(test)]
mod tests {
    use super::printable;

    #[test]
    fn a_text_is_cut_and_can_not_fake_another_line() {
        assert_eq!(printable("a\nb\u{1b}[31mc\td", 100), "a\\nb\\u{1b}[31mc\td");
        let long = printable(&"é".repeat(50), 99);
        assert_eq!(long, "é".repeat(49) + "…");
    }

    #[test]
    fn quotes_stay_as_they_are() {
        assert_eq!(printable(r#"{"at":"it's"}"#, 100), r#"{"at":"it's"}"#);
    }
}
