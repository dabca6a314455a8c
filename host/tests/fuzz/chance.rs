//! The choices of a case, made of its bytes. Where these have ended, every choice is the first one: so bytes that are cut off make
//! a simpler case.
//!
//! Invariant: nothing is chosen by anything but the bytes.

use arbitrary::Unstructured;

/// Where a case tells what it does.
pub type Story<'s> = &'s mut dyn FnMut(&dyn Fn() -> String);

pub struct Chance<'a, 's> {
    bytes: Unstructured<'a>,
    story: Story<'s>,
}

impl<'a, 's> Chance<'a, 's> {
    pub fn new(bytes: &'a [u8], story: Story<'s>) -> Chance<'a, 's> {
        Chance { bytes: Unstructured::new(bytes), story }
    }

    /// Tells what the case does, if anybody wants to know.
    pub fn tell(&mut self, line: impl Fn() -> String) {
        (self.story)(&line);
    }

    /// For what makes its own choices.
    pub fn rest(&mut self) -> &mut Unstructured<'a> {
        &mut self.bytes
    }

    /// 0 .. end
    pub fn below(&mut self, end: usize) -> usize {
        self.bytes.int_in_range(0..=end.saturating_sub(1)).unwrap_or(0)
    }

    /// first ..= last
    pub fn between(&mut self, first: usize, last: usize) -> usize {
        first + self.below(last - first + 1)
    }

    /// Never, once the bytes have ended.
    pub fn one_in(&mut self, n: usize) -> bool {
        self.below(n) == n - 1
    }

    pub fn pick<'c, T>(&mut self, from: &'c [T]) -> &'c T {
        &from[self.below(from.len())]
    }

    pub fn byte(&mut self) -> u8 {
        self.bytes.arbitrary().unwrap_or(0)
    }

    /// A number as somebody would choose it who wants something to break.
    pub fn word(&mut self) -> u32 {
        let any = self.bytes.arbitrary().unwrap_or(0u32);
        let near = self.below(5) as u32;
        match self.below(6) {
            0 => near,
            1 => 1 << (any % 32),
            2 => (1u32 << (any % 32)).wrapping_sub(near).wrapping_add(1),
            3 => u32::MAX - near,
            4 => any % 65_536,
            _ => any,
        }
    }

    pub fn long(&mut self) -> u64 {
        let (low, high) = (self.word(), self.word());
        match self.below(5) {
            0 => u64::from(low),
            1 => u64::MAX - u64::from(low % 1_000),
            2 => (1u64 << 63) + u64::from(low % 4) - 2,
            _ => u64::from(high) << 32 | u64::from(low),
        }
    }

    /// So many bytes at most.
    pub fn bytes(&mut self, most: usize) -> Vec<u8> {
        let length = self.below(most + 1).min(self.bytes.len());
        self.bytes.bytes(length).map(<[u8]>::to_vec).unwrap_or_default()
    }
}
