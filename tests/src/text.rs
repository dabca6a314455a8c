//! Text made from a seed: the same bytes for the same seed, on every machine.

use std::io::{self, BufWriter, Write};
use std::path::Path;

const VOCABULARY: u64 = 50_000;
const WORDS_PER_LINE: u64 = 12;

/// An endless row of words, of which some are far more frequent than others, as in a language.
pub struct Words {
    state: u64,
}

impl Words {
    pub fn new(seed: u64) -> Words {
        Words { state: seed }
    }

    /// SplitMix64 (Steele, Lea and Flood 2014).
    pub fn next_random(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number in `0 .. bound`. The bias of the modulo doesn't matter here.
    pub fn below(&mut self, bound: u64) -> u64 {
        self.next_random() % bound
    }

    /// Appends a word of lower-case letters.
    pub fn push_word(&mut self, line: &mut Vec<u8>) {
        // The cube of a uniform number makes small ranks frequent.
        let uniform = (self.next_random() >> 11) as f64 / (1u64 << 53) as f64;
        let mut rank = (VOCABULARY as f64 * uniform * uniform * uniform) as u64;
        loop {
            line.push(b'a' + (rank % 26) as u8);
            rank /= 26;
            if rank == 0 {
                break;
            }
        }
    }

    /// Appends a line of words with single spaces between them and a line feed at its end.
    pub fn push_line(&mut self, line: &mut Vec<u8>) {
        for place in 0..=self.below(2 * WORDS_PER_LINE) {
            if place > 0 {
                line.push(b' ');
            }
            self.push_word(line);
        }
        line.push(b'\n');
    }
}

/// Writes about `bytes` of text (whole lines) to a file.
///
/// # Errors
/// If it can't be written.
pub fn write_text(path: &Path, seed: u64, bytes: u64) -> io::Result<()> {
    let mut file = BufWriter::with_capacity(1 << 20, std::fs::File::create(path)?);
    let (mut words, mut line, mut written) = (Words::new(seed), Vec::new(), 0);
    while written < bytes {
        line.clear();
        words.push_line(&mut line);
        file.write_all(&line)?;
        written += line.len() as u64;
    }
    file.flush()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(seed: u64, lines: usize) -> String {
        let (mut words, mut text) = (Words::new(seed), Vec::new());
        (0..lines).for_each(|_| words.push_line(&mut text));
        String::from_utf8(text).expect("only letters, spaces and line feeds")
    }

    #[test]
    fn the_same_seed_gives_the_same_text_and_another_seed_another() {
        assert_eq!(text(1, 100), text(1, 100));
        assert_ne!(text(1, 100), text(2, 100));
    }

    #[test]
    fn some_words_are_frequent_and_many_are_rare() {
        let text = text(3, 2_000);
        let mut counts = std::collections::BTreeMap::new();
        text.split_whitespace().for_each(|word| *counts.entry(word).or_insert(0) += 1);
        assert!(counts.values().max() > Some(&200), "{:?}", counts.values().max());
        assert!(counts.values().filter(|&&count| count == 1).count() > 1_000);
    }
}
