//! How figures are shown: medians with their range, ratios pair by pair.

/// The median of some figures and their range.
pub struct Spread {
    pub min: f64,
    pub median: f64,
    pub max: f64,
}

impl Spread {
    /// # Panics
    /// If there are none.
    pub fn of(figures: impl IntoIterator<Item = f64>) -> Spread {
        let mut figures = figures.into_iter().collect::<Vec<_>>();
        figures.sort_by(f64::total_cmp);
        Spread { min: figures[0], median: figures[figures.len() / 2], max: figures[figures.len() - 1] }
    }
}

impl std::fmt::Display for Spread {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:8.3}  ({:.3} .. {:.3})", self.median, self.min, self.max)
    }
}

/// A line of a table: what, its figure, and the goal if there is one.
pub fn line(what: &str, figure: &Spread, unit: &str, goal: &str) {
    println!("  {what:<46} {figure} {unit:<14} {goal}");
}
