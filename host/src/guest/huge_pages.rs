//! Huge pages for the memory of a guest that has grown large: its tables of keys miss the processor's page tables less often.
//!
//! The kernel gives them only where they are advised, unless it is set to give them always. Small guests have none, so that an idle
//! one takes no more than it has touched.
//!
//! Invariant: nothing but how the kernel backs memory changes; where it can't, all goes on as before.
#![expect(unsafe_code, reason = "advice about memory is given by address")]

use std::ops::Range;

/// From this size on, a memory is large.
pub(super) const LARGE_BYTES_MIN: usize = 8 << 20;

/// Advises the kernel to back the memory that holds `part`, and what it will grow to, with huge pages.
pub(super) fn advise(part: &[u8]) {
    let Ok(maps) = std::fs::read_to_string("/proc/self/maps") else { return };
    if let Some(range) = growing_from(&maps, part.as_ptr().addr()) {
        advise_range(&range);
    }
}

/// From the start of the mapping that holds `address` to the end of the room behind it that can't be accessed yet.
///
/// `maps` is as in `proc(5)`: a line for each mapping, in the order of addresses, `start-end rwxp ...`.
fn growing_from(maps: &str, address: usize) -> Option<Range<usize>> {
    let mut found: Option<Range<usize>> = None;
    for line in maps.lines() {
        let (bounds, rest) = line.split_once(' ')?;
        let (start, end) = bounds.split_once('-')?;
        let [start, end] = [start, end].map(|bound| usize::from_str_radix(bound, 16).ok());
        let (start, end) = (start?, end?);
        match &mut found {
            None if (start..end).contains(&address) => found = Some(start..end),
            None => continue,
            Some(range) if range.end == start => range.end = end,
            Some(_) => break,
        }
        if rest.starts_with("---") {
            break;
        }
    }
    found
}

#[cfg(target_os = "linux")]
fn advise_range(range: &Range<usize>) {
    let start = std::ptr::with_exposed_provenance_mut(range.start);
    // SAFETY: this advice never changes what memory holds or who may access it, whatever is mapped there by now.
    let advised = unsafe { rustix::mm::madvise(start, range.len(), rustix::mm::Advice::LinuxHugepage) };
    if let Err(error) = advised {
        tracing::debug!(%error, "no huge pages for a large guest");
    }
}

#[cfg(not(target_os = "linux"))]
fn advise_range(_: &Range<usize>) {}

#[cfg(test)]
mod tests {
    use super::*;

    const MAPS: &str = "\
1000-2000 r--p 00000000 fe:00 1 /usr/bin/lockgate
4000-6000 rw-p 00000000 00:01 2 /memfd:image (deleted)
6000-9000 rw-p 00000000 00:00 0 
9000-20000 ---p 00000000 00:00 0 
20000-21000 rw-p 00000000 00:00 0 
30000-31000 rw-p 00000000 00:00 0 ";

    #[test]
    fn a_memory_ends_with_the_room_behind_it() {
        assert_eq!(growing_from(MAPS, 0x4000), Some(0x4000..0x20000));
        assert_eq!(growing_from(MAPS, 0x8fff), Some(0x6000..0x20000));
        assert_eq!(growing_from(MAPS, 0x20fff), Some(0x20000..0x21000));
        assert_eq!(growing_from(MAPS, 0x30000), Some(0x30000..0x31000));
        assert_eq!(growing_from(MAPS, 0x2000), None);
        assert_eq!(growing_from("no map", 0), None);
    }
}
