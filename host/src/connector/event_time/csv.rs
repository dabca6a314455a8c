//! One column of a line. Pure.
//!
//! A column that begins with a double quote ends with the next one; two of them within it stand for one (RFC 4180).

use std::borrow::Cow;

use memchr::{memchr, memchr_iter};

/// Column `index`, from 0; `None` if there are fewer.
pub(super) fn column(line: &[u8], separator: u8, index: usize) -> Option<Cow<'_, [u8]>> {
    let mut rest = line;
    for _ in 0..index {
        let end = end_of_column(rest, separator);
        rest = rest.get(end + 1..)?;
    }
    let field = &rest[..end_of_column(rest, separator)];
    Some(unquoted(field))
}

/// Where the first column ends: at a separator or at the end of the line.
fn end_of_column(line: &[u8], separator: u8) -> usize {
    let quoted = quoted_bytes(line).unwrap_or(0);
    memchr(separator, &line[quoted..]).map_or(line.len(), |end| quoted + end)
}

/// How many bytes a quoted column takes with its quotes; `None` if it isn't quoted or has no end.
fn quoted_bytes(line: &[u8]) -> Option<usize> {
    if line.first() != Some(&b'"') {
        return None;
    }
    let mut quotes = memchr_iter(b'"', line).skip(1).peekable();
    while let Some(quote) = quotes.next() {
        match quotes.peek() {
            Some(next) if *next == quote + 1 => drop(quotes.next()),
            Some(_) | None => return Some(quote + 1),
        }
    }
    None
}

fn unquoted(field: &[u8]) -> Cow<'_, [u8]> {
    match quoted_bytes(field) {
        Some(bytes) => {
            let inner = &field[1..bytes - 1];
            if memchr(b'"', inner).is_none() {
                return Cow::Borrowed(inner);
            }
            let mut last_was_quote = false;
            let keep = inner.iter().copied().filter(|&byte| {
                last_was_quote = byte == b'"' && !last_was_quote;
                byte != b'"' || last_was_quote
            });
            Cow::Owned(keep.collect())
        }
        None => Cow::Borrowed(field),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_found_quoted_or_not() {
        for (line, index, expected) in [
            ("a,b,c", 0, Some("a")),
            ("a,b,c", 2, Some("c")),
            ("a,b,c", 3, None),
            ("", 0, Some("")),
            ("", 1, None),
            (",", 1, Some("")),
            (r#""a,b",c"#, 0, Some("a,b")),
            (r#""a,b",c"#, 1, Some("c")),
            (r#"x,"say ""hi"", ok",7"#, 1, Some(r#"say "hi", ok"#)),
            (r#"x,"say ""hi"", ok",7"#, 2, Some("7")),
            (r#""""",7"#, 0, Some(r#"""#)),
            (r#""no end,7"#, 1, Some("7")),
            (r#"5" disk,7"#, 1, Some("7")),
        ] {
            let found = column(line.as_bytes(), b',', index);
            assert_eq!(found.as_deref(), expected.map(str::as_bytes), "column {index} of {line}");
        }
        assert_eq!(column(b"a\tb,c", b'\t', 1).as_deref(), Some(&b"b,c"[..]));
    }
}
