//! Buffers of segments that are gone, for those to come.
//!
//! A page of memory that the process touches for the first time costs more than the forty entries that fit into it, and a new
//! segment begins at every barrier. Invariant: what is kept here is empty, and within its bound.

use std::sync::{Arc, Mutex};

use hashbrown::HashTable;

use super::segment::Slot;

/// Smaller ones cost nothing to make.
const BUFFER_BYTES_MIN: usize = 64 << 10;

/// Shared by the segments of one state. The default keeps nothing.
#[derive(Clone, Debug, Default)]
pub struct Spares(Option<Arc<Kept>>);

#[derive(Debug)]
struct Kept {
    bytes_max: usize,
    buffers: Mutex<Vec<Buffers>>,
}

/// What a segment is made of.
#[derive(Debug, Default)]
pub struct Buffers {
    pub arena: Vec<u8>,
    pub slots: HashTable<Slot>,
}

impl Buffers {
    fn bytes(&self) -> usize {
        self.arena.capacity() + self.slots.allocation_size()
    }
}

impl Spares {
    pub fn new(bytes_max: usize) -> Spares {
        Spares(Some(Arc::new(Kept { bytes_max, buffers: Mutex::default() })))
    }

    /// Empty buffers, with room if there are any.
    pub fn take(&self) -> Buffers {
        let kept = self.0.as_ref().and_then(|kept| kept.buffers.lock().ok()?.pop());
        kept.unwrap_or_default()
    }

    /// Keeps the buffers if they are worth it and there is room for them.
    pub fn put(&self, mut buffers: Buffers) {
        let Some(kept) = &self.0 else { return };
        // A very large one would serve small segments for ever.
        if buffers.bytes() < BUFFER_BYTES_MIN || buffers.bytes() > kept.bytes_max / 4 {
            return;
        }
        buffers.arena.clear();
        buffers.slots.clear();
        let Ok(mut all) = kept.buffers.lock() else { return };
        if all.iter().map(Buffers::bytes).sum::<usize>() + buffers.bytes() <= kept.bytes_max {
            all.push(buffers);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_come_back_empty_and_only_as_many_as_fit() {
        let spares = Spares::new(1 << 20);
        let buffers = |bytes| Buffers { arena: vec![1; bytes], ..Buffers::default() };
        for bytes in [10, 200 << 10, 200 << 10, 300 << 10, 200 << 10, 200 << 10, 200 << 10, 200 << 10] {
            spares.put(buffers(bytes));
        }
        let taken = [(); 6].map(|()| spares.take().arena);
        assert!(taken.iter().all(Vec::is_empty));
        assert_eq!(taken.map(|arena| arena.capacity() >> 10), [200, 200, 200, 200, 200, 0]);
        assert_eq!(Spares::default().take().arena.capacity(), 0);
    }
}
