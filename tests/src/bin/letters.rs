//! Writes the tables of letters and digits that the word counts in C, JavaScript and Python use: `cargo run -p lockgate-tests
//! --bin letters`. Their own libraries have none, an old one, or another idea of what a letter is.
//!
//! Invariant: what the tables say is what `char::is_alphanumeric` and `char::to_lowercase` say in the Rust that this is compiled with.

use std::fmt::Write;
use std::fs;
use std::io;
use std::path::Path;

use lockgate_tests::repository;

/// Characters from one to another, both included.
struct Range {
    first: char,
    last: char,
}

/// Capital letters from one to another, `step` apart, each `delta` before its small letter.
struct Capitals {
    first: u32,
    last: u32,
    step: u32,
    delta: i64,
}

fn main() -> io::Result<()> {
    let examples = repository().join("examples");
    let ranges = alphanumeric();
    write(&examples.join("word-count-python/letters.py"), &python(&ranges))?;
    write(&examples.join("word-count-javascript/letters.js"), &javascript(&ranges))?;
    write(&examples.join("word-count-c/letters.h"), &c(&ranges, &capitals()))
}

fn write(path: &Path, text: &str) -> io::Result<()> {
    fs::write(path, text)?;
    println!("wrote {}", path.display());
    Ok(())
}

fn alphanumeric() -> Vec<Range> {
    let mut ranges: Vec<Range> = Vec::new();
    for character in ('\0'..=char::MAX).filter(|character| character.is_alphanumeric()) {
        match ranges.last_mut() {
            Some(range) if u32::from(range.last) + 1 == u32::from(character) => range.last = character,
            _ => ranges.push(Range { first: character, last: character }),
        }
    }
    ranges
}

/// Those with one small letter. There is one with two, U+0130, which the table leaves to its user.
fn capitals() -> Vec<Capitals> {
    let mut runs: Vec<Capitals> = Vec::new();
    for capital in '\0'..=char::MAX {
        let mut small = capital.to_lowercase();
        let (Some(first), None) = (small.next(), small.next()) else { continue };
        let (capital, delta) = (u32::from(capital), i64::from(u32::from(first)) - i64::from(u32::from(capital)));
        if delta == 0 {
            continue;
        }
        match runs.last_mut() {
            Some(run) if run.delta == delta && run.goes_on_with(capital) => {
                run.step = capital - run.last;
                run.last = capital;
            }
            _ => runs.push(Capitals { first: capital, last: capital, step: 1, delta }),
        }
    }
    runs
}

impl Capitals {
    fn goes_on_with(&self, capital: u32) -> bool {
        let step = capital - self.last;
        step <= 2 && (self.first == self.last || step == self.step)
    }
}

/// Items on lines of a readable length.
fn lines(items: impl Iterator<Item = String>, start: &str, end: &str) -> String {
    const WIDTH: usize = 120;
    let mut text = String::new();
    let mut line = start.to_owned();
    for item in items {
        if line.len() + item.len() + end.len() > WIDTH {
            let _ = writeln!(text, "{}{end}", line.trim_end());
            start.clone_into(&mut line);
        }
        line.push_str(&item);
    }
    let _ = writeln!(text, "{}{end}", line.trim_end());
    text
}

fn version() -> String {
    let (major, minor, _) = char::UNICODE_VERSION;
    format!("Unicode {major}.{minor}. Written by tests/src/bin/letters.rs.")
}

/// A range of a character class, with characters escaped by `escape`.
fn class(range: &Range, escape: impl Fn(char) -> String) -> String {
    if range.first == range.last {
        escape(range.first)
    } else {
        format!("{}-{}", escape(range.first), escape(range.last))
    }
}

fn python(ranges: &[Range]) -> String {
    let escape = |character: char| match u32::from(character) {
        code @ ..=0xffff => format!("\\u{code:04x}"),
        code => format!("\\U{code:08x}"),
    };
    let ranges = lines(ranges.iter().map(|range| class(range, escape)), "    \"", "\"");
    format!(
        "\"\"\"What is a letter or a digit, as ranges of a regular expression's class: {}\"\"\"\n\nLETTERS = (\n{ranges})\n",
        version()
    )
}

fn javascript(ranges: &[Range]) -> String {
    let escape = |character: char| match u32::from(character) {
        code @ ..=0xffff => format!("\\\\u{code:04x}"),
        code => format!("\\\\u{{{code:x}}}"),
    };
    let ranges = lines(ranges.iter().map(|range| class(range, escape)), "  \"", "\",");
    format!(
        "// What is a letter or a digit, as ranges of a regular expression's class (flag u): {}\n\nexport const LETTERS = [\n\
         {ranges}].join(\"\");\n",
        version()
    )
}

fn c(ranges: &[Range], capitals: &[Capitals]) -> String {
    let range = |range: &Range| format!("{{0x{:x}, 0x{:x}}}, ", u32::from(range.first), u32::from(range.last));
    let run = |run: &Capitals| format!("{{0x{:x}, 0x{:x}, {}, {}}}, ", run.first, run.last, run.step, run.delta);
    let (ranges, capitals) = (lines(ranges.iter().map(range), "    ", ""), lines(capitals.iter().map(run), "    ", ""));
    format!(
        "// What is a letter or a digit, and the small letter of each capital: {}\n#pragma once\n#include <stdint.h>\n\n\
         // Letters and digits: the first and the last of each range.\n\
         static const struct {{ uint32_t first, last; }} letters[] = {{\n{ranges}}};\n\n\
         // Capitals from the first to the last, `step` apart; the small letter is `delta` behind. U+0130 isn't among them: it has two.\n\
         static const struct {{ uint32_t first, last, step; int32_t delta; }} capitals[] = {{\n{capitals}}};\n",
        version()
    )
}
