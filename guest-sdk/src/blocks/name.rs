//! Names of a block's tables and timers.
//!
//! Invariant: a name lives as long as the program and is made once, so that declaring again costs no memory.

use std::cell::RefCell;
use std::collections::BTreeSet;

thread_local! {
    static NAMES: RefCell<BTreeSet<&'static str>> = const { RefCell::new(BTreeSet::new()) };
}

/// `block-part`: made of what a table's name may have.
pub(super) fn part(block: &str, part: &str) -> &'static str {
    let name = format!("{block}-{part}");
    NAMES.with_borrow_mut(|names| match names.get(name.as_str()) {
        Some(known) => known,
        None => {
            let name: &'static str = name.leak();
            names.insert(name);
            name
        }
    })
}

/// Tells this block's timers from all others of an operator: the block's name and what the timer is for.
pub(super) fn tag(block: &str, purpose: &str) -> &'static [u8] {
    let name = part(block, purpose);
    name.as_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_made_once() {
        assert!(std::ptr::eq(part("visits", "panes"), part("visits", "panes")));
        assert_eq!(tag("visits", "fire"), b"visits-fire");
    }
}
