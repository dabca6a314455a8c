//! Where windows of one length at equal distances lie, and the panes that they are made of.
//!
//! Invariant: of the panes between `panes_min` and `panes_max`, no computation passes an end of time.

use super::time::{clamped, piece};

/// Where windows and panes lie, in milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Geometry {
    pub(super) size: i64,
    pub(super) slide: i64,
    pub(super) pane: i64,
    /// The panes of which all windows are within time.
    pub(super) panes_min: i64,
    pub(super) panes_max: i64,
}

impl Geometry {
    /// Windows of `size` that begin at each multiple of `slide`, which is at most `size`.
    pub(super) fn new(size: i64, slide: i64) -> Geometry {
        let pane = greatest_common_divisor(size, slide);
        // The first window of a pane begins up to `size` before it, and the last one ends up to `size` after it.
        let panes_min = piece(i64::MIN + size, pane) + 1;
        let panes_max = piece(i64::MAX - size, pane) - 1;
        Geometry { size, slide, pane, panes_min, panes_max }
    }

    pub(super) fn panes_per_window(self) -> i64 {
        self.size / self.pane
    }

    /// The first pane of the window from `start` on, and the first one behind it.
    pub(super) fn panes(self, start: i64) -> (i64, i64) {
        let from = piece(start, self.pane);
        (from, from + self.panes_per_window())
    }

    /// The start of the last window that has a pane.
    pub(super) fn last_start(self, pane: i64) -> i64 {
        piece(pane * self.pane, self.slide) * self.slide
    }

    /// The start of the first window that has a pane.
    pub(super) fn first_start(self, pane: i64) -> i64 {
        // The smallest multiple of the slide from which a window reaches beyond the pane's start.
        (piece(pane * self.pane - self.size, self.slide) + 1) * self.slide
    }

    /// The start of the first window that isn't complete at a watermark.
    pub(super) fn first_open_start(self, watermark: i64) -> i64 {
        let before = (i128::from(watermark) - i128::from(self.size) + 1).div_euclid(self.slide.into());
        clamped((before + 1) * i128::from(self.slide))
    }

    /// The last millisecond of the window from `start` on.
    pub(super) fn last(self, start: i64) -> i64 {
        start + (self.size - 1)
    }

    /// When the last window of a pane is complete.
    pub(super) fn last_complete(self, pane: i64) -> i64 {
        self.last(self.last_start(pane))
    }
}

fn greatest_common_divisor(a: i64, b: i64) -> i64 {
    if b == 0 { a } else { greatest_common_divisor(b, a % b) }
}
