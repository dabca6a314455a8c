//! Counts what the running thread has allocated, so that a case can be told how much memory it took at most.
//!
//! Invariant: it only counts; memory comes from the system's allocator and goes back there.
#![expect(unsafe_code, reason = "an allocator is unsafe by its trait")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

thread_local! {
    /// What this thread has taken less what it has given back; what others have taken it may give back, too.
    static HELD: Cell<isize> = const { Cell::new(0) };
    static PEAK: Cell<isize> = const { Cell::new(0) };
}

pub struct Counting;

/// Adds to what is held. A thread that ends has no counters any more.
fn count(bytes: isize) {
    let _ended = HELD.try_with(|held| {
        held.set(held.get().wrapping_add(bytes));
        let _ended = PEAK.try_with(|peak| peak.set(peak.get().max(held.get())));
    });
}

// SAFETY: every call is handed on unchanged to the system's allocator. Counting allocates nothing: the counters need neither
// initialisation nor a destructor.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size() as isize);
        // SAFETY: as the caller owes.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count(layout.size() as isize);
        // SAFETY: as the caller owes.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        count(new_size as isize - layout.size() as isize);
        // SAFETY: as the caller owes.
        unsafe { System.realloc(memory, layout, new_size) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        count(-(layout.size() as isize));
        // SAFETY: as the caller owes.
        unsafe { System.dealloc(memory, layout) }
    }
}

/// What `work` gives, and how many bytes this thread held at most beside those before.
pub fn peak_of<R>(work: impl FnOnce() -> R) -> (R, usize) {
    let before = HELD.get();
    PEAK.set(before);
    let result = work();
    (result, usize::try_from(PEAK.get() - before).unwrap_or(0))
}

#[test]
fn what_is_taken_and_given_back_again_is_counted() {
    let (kept, peak) = peak_of(|| {
        drop(Vec::<u8>::with_capacity(1 << 20));
        vec![0u8; 1000]
    });
    assert!(peak >= 1 << 20 && kept.len() == 1000, "{peak}");
    assert!(peak_of(|| Box::new(1)).1 < 1 << 10);
}
