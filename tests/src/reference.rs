//! What a word count must have written: for a word that occurs n times, the lines 1 to n, each exactly once.
//!
//! That holds whatever the order in which files, subtasks and restarts let the words through, and a record lost, counted
//! twice or written twice breaks it.

use std::collections::HashMap;
use std::fs;
use std::io::{self, BufRead, BufReader};
use std::path::{Path, PathBuf};

/// How often each word occurs in the input.
#[derive(Clone, Debug, Default)]
pub struct WordTotals {
    totals: HashMap<Vec<u8>, u64>,
    words: u64,
}

/// An output that was found exact.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Checked {
    pub part_files: usize,
    pub lines: u64,
}

/// The first thing found wrong with an output.
#[derive(Debug, PartialEq, Eq)]
pub enum Mismatch {
    Malformed {
        file: PathBuf,
        line: String,
    },
    /// A count that the word never reached, or a word that isn't in the input.
    Excess {
        word: String,
        count: u64,
        total: u64,
    },
    Twice {
        word: String,
        count: u64,
    },
    /// Fewer lines than words.
    Missing {
        word: String,
        count: u64,
        lines: u64,
        words: u64,
    },
}

/// The committed files of a file sink, in order of their names: all but those with a name, or in a folder with a name, that
/// starts with a dot. None if the folder isn't there.
///
/// # Errors
/// If the folder can't be listed.
pub fn part_files(output: &Path) -> io::Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    if output.exists() {
        collect_part_files(output, &mut files)?;
    }
    files.sort();
    Ok(files)
}

fn collect_part_files(folder: &Path, files: &mut Vec<PathBuf>) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        if entry.file_name().as_encoded_bytes().starts_with(b".") {
            continue;
        }
        if entry.file_type()?.is_dir() {
            collect_part_files(&entry.path(), files)?;
        } else {
            files.push(entry.path());
        }
    }
    Ok(())
}

impl WordTotals {
    /// The totals of all files of a folder.
    ///
    /// # Errors
    /// If it can't be read.
    pub fn of_folder(folder: &Path) -> io::Result<WordTotals> {
        let mut totals = WordTotals::default();
        for entry in fs::read_dir(folder)? {
            let mut lines = BufReader::with_capacity(1 << 20, fs::File::open(entry?.path())?);
            let mut line = Vec::new();
            while lines.read_until(b'\n', &mut line)? > 0 {
                totals.add(&line);
                line.clear();
            }
        }
        Ok(totals)
    }

    /// Adds the words of a text: what is between spaces and line ends.
    pub fn add(&mut self, text: &[u8]) {
        for word in text.split(|byte| byte.is_ascii_whitespace()).filter(|word| !word.is_empty()) {
            self.words += 1;
            match self.totals.get_mut(word) {
                Some(total) => *total += 1,
                None => {
                    self.totals.insert(word.to_owned(), 1);
                }
            }
        }
    }

    /// How many words there are in all.
    pub fn words(&self) -> u64 {
        self.words
    }

    /// Compares a whole output with these totals.
    ///
    /// # Errors
    /// The first mismatch found.
    ///
    /// # Panics
    /// If the output can't be read.
    pub fn check(&self, output: &Path) -> Result<Checked, Mismatch> {
        let files = part_files(output).unwrap_or_else(|error| panic!("cannot list {}: {error}", output.display()));
        let mut seen = Seen::new(self);
        for file in &files {
            let content =
                fs::File::open(file).unwrap_or_else(|error| panic!("cannot open {}: {error}", file.display()));
            let mut lines = BufReader::with_capacity(1 << 20, content);
            let mut line = Vec::new();
            while lines.read_until(b'\n', &mut line).expect("a part file can be read") > 0 {
                let (word, count) =
                    parse(&line).ok_or_else(|| Mismatch::Malformed { file: file.clone(), line: lossy(&line) })?;
                seen.see(word, count)?;
                line.clear();
            }
        }
        seen.finish(self.words)?;
        Ok(Checked { part_files: files.len(), lines: self.words })
    }
}

/// The lines met so far: a bit for each of the counts 1 to n of each word.
struct Seen<'a> {
    /// By word: the number of its first bit, and n.
    bits_of: HashMap<&'a [u8], (u64, u64)>,
    bits: Vec<u64>,
    lines: u64,
}

impl<'a> Seen<'a> {
    fn new(totals: &'a WordTotals) -> Seen<'a> {
        let mut next_bit = 0;
        let place = |(word, &total): (&'a Vec<u8>, &u64)| {
            let first = next_bit;
            next_bit += total;
            (word.as_slice(), (first, total))
        };
        let bits_of = totals.totals.iter().map(place).collect();
        Seen { bits_of, bits: vec![0; totals.words.div_ceil(64) as usize], lines: 0 }
    }

    fn see(&mut self, word: &[u8], count: u64) -> Result<(), Mismatch> {
        let (first, total) = self.bits_of.get(word).copied().unwrap_or((0, 0));
        if !(1..=total).contains(&count) {
            return Err(Mismatch::Excess { word: lossy(word), count, total });
        }
        let bit = first + count - 1;
        let mask = 1 << (bit % 64);
        let group = &mut self.bits[(bit / 64) as usize];
        if *group & mask != 0 {
            return Err(Mismatch::Twice { word: lossy(word), count });
        }
        *group |= mask;
        self.lines += 1;
        Ok(())
    }

    fn finish(&self, words: u64) -> Result<(), Mismatch> {
        if self.lines == words {
            return Ok(());
        }
        let is_unseen = |bit: &u64| self.bits[(bit / 64) as usize] & (1 << (bit % 64)) == 0;
        let (word, count) = (self.bits_of.iter())
            .find_map(|(word, &(first, total))| {
                (first..first + total).find(is_unseen).map(|bit| (lossy(word), bit - first + 1))
            })
            .expect("fewer lines than words leave one out");
        Err(Mismatch::Missing { word, count, lines: self.lines, words })
    }
}

/// `word`, a tab, a decimal count, a line feed.
fn parse(line: &[u8]) -> Option<(&[u8], u64)> {
    let line = line.strip_suffix(b"\n")?;
    let tab = line.iter().position(|&byte| byte == b'\t')?;
    let count = std::str::from_utf8(&line[tab + 1..]).ok()?;
    Some((&line[..tab], count.parse().ok()?))
}

fn lossy(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What the check says of these part files for the input "b a b".
    fn check(parts: &[&str]) -> Result<Checked, Mismatch> {
        let folder = tempfile::tempdir().expect("a temporary folder");
        for (number, part) in parts.iter().enumerate() {
            fs::write(folder.path().join(format!("part-{number}")), part).expect("it is writable");
        }
        fs::write(folder.path().join(".part-hidden"), "not read\n").expect("it is writable");
        let mut totals = WordTotals::default();
        totals.add(b"b a\nb\n");
        totals.check(folder.path())
    }

    #[test]
    fn an_exact_output_is_accepted_in_any_order_and_in_any_number_of_files() {
        assert_eq!(check(&["a\t1\nb\t2\nb\t1\n"]), Ok(Checked { part_files: 1, lines: 3 }));
        assert_eq!(check(&["b\t1\n", "b\t2\na\t1\n"]), Ok(Checked { part_files: 2, lines: 3 }));
    }

    #[test]
    fn every_kind_of_wrong_output_is_found() {
        let word = |word: &str| word.to_owned();
        assert_eq!(check(&["a\t1\nb\t1\n"]), Err(Mismatch::Missing { word: word("b"), count: 2, lines: 2, words: 3 }));
        assert_eq!(check(&["b\t1\n", "b\t1\n"]), Err(Mismatch::Twice { word: word("b"), count: 1 }));
        assert_eq!(check(&["a\t2\n"]), Err(Mismatch::Excess { word: word("a"), count: 2, total: 1 }));
        assert_eq!(check(&["c\t1\n"]), Err(Mismatch::Excess { word: word("c"), count: 1, total: 0 }));
        assert!(matches!(check(&["a\t1"]), Err(Mismatch::Malformed { .. })));
        assert!(matches!(check(&["a 1\n"]), Err(Mismatch::Malformed { .. })));
    }
}
