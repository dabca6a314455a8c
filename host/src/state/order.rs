//! The entries of one segment in the order of their keys, for scans; made when first asked for.
//!
//! Sorted runs of offsets that grow like a logarithmic merge: what was appended since the last scan becomes a new run, and runs
//! of similar length are merged, so that scans between writes cost O(log n) comparisons an entry in all.
//!
//! Invariant: every key of `arena[..covered]` is in some run. A run may name an entry that was replaced since; the segment's
//! table knows the live one.

use super::entry;

#[derive(Debug, Default)]
pub struct Order {
    /// Longest first.
    runs: Vec<Vec<u32>>,
    covered: usize,
}

impl Order {
    /// Takes up what was appended to the arena since the last call.
    pub fn catch_up(&mut self, arena: &[u8]) {
        let mut run = Vec::new();
        while self.covered < arena.len() {
            let offset = self.covered as u32;
            run.push(offset);
            self.covered += entry::at(arena, offset).bytes();
        }
        if run.is_empty() {
            return;
        }
        run.sort_unstable_by(|&a, &b| entry::at(arena, a).key.cmp(entry::at(arena, b).key));
        self.runs.push(run);
        while let [.., longer, shorter] = &mut self.runs[..]
            && longer.len() < shorter.len() * 2
        {
            *longer = merge(arena, longer, shorter);
            self.runs.pop();
        }
    }

    /// The arena was cut back to `length` bytes.
    pub fn forget_from(&mut self, length: usize) {
        if self.covered > length {
            self.covered = length;
            self.runs.iter_mut().for_each(|run| run.retain(|&offset| (offset as usize) < length));
            self.runs.retain(|run| !run.is_empty());
        }
    }

    /// Offsets, sorted by key within each run; a key may be in several.
    pub fn runs(&self) -> &[Vec<u32>] {
        &self.runs
    }
}

fn merge(arena: &[u8], left: &[u32], right: &[u32]) -> Vec<u32> {
    let mut merged = Vec::with_capacity(left.len() + right.len());
    let (mut left, mut right) = (left.iter().peekable(), right.iter().peekable());
    while let (Some(&&l), Some(&&r)) = (left.peek(), right.peek()) {
        if entry::at(arena, l).key <= entry::at(arena, r).key {
            merged.push(l);
            left.next();
        } else {
            merged.push(r);
            right.next();
        }
    }
    merged.extend(left);
    merged.extend(right);
    merged
}
