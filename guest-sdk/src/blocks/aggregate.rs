//! What is kept of the values of a window: a few bytes that each value is added to.
//!
//! Invariant: adding and merging are associative and commutative, so that the result doesn't depend on the order in
//! which records come or on how a window is cut into panes.

use serde::{Deserialize, Serialize};

use crate::encoding::Data;

/// The values of a window in short. The type itself is what is kept in state.
///
/// It is made from the first value, so there is none that is empty. Every order of [`add`](Self::add) and
/// [`merge`](Self::merge) of the same values must give the same: a sum of floating-point numbers doesn't, one of
/// integers does.
///
/// ```
/// use lockgate::blocks::Aggregate;
/// use serde::{Deserialize, Serialize};
///
/// /// The range of the values.
/// #[derive(Clone, Serialize, Deserialize)]
/// struct Range {
///     lowest: i64,
///     highest: i64,
/// }
///
/// impl Aggregate for Range {
///     type Input = i64;
///     type Output = i64;
///
///     fn create(first: i64) -> Range {
///         Range { lowest: first, highest: first }
///     }
///     fn add(&mut self, next: i64) {
///         self.lowest = self.lowest.min(next);
///         self.highest = self.highest.max(next);
///     }
///     fn merge(&mut self, other: &Range) {
///         self.lowest = self.lowest.min(other.lowest);
///         self.highest = self.highest.max(other.highest);
///     }
///     fn finish(self) -> i64 {
///         self.highest.saturating_sub(self.lowest)
///     }
/// }
///
/// let mut range = Range::create(5);
/// range.add(-1);
/// assert_eq!(range.finish(), 6);
/// ```
pub trait Aggregate: Data + Clone {
    /// What is added.
    type Input;
    /// What comes out.
    type Output;

    fn create(first: Self::Input) -> Self;
    fn add(&mut self, next: Self::Input);
    /// Adds all that was added to another.
    fn merge(&mut self, other: &Self);
    fn finish(self) -> Self::Output;
}

/// How many values there are; each is a `()`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Count(u64);

impl Aggregate for Count {
    type Input = ();
    type Output = u64;

    fn create((): ()) -> Count {
        Count(1)
    }

    fn add(&mut self, (): ()) {
        self.0 += 1;
    }

    fn merge(&mut self, other: &Count) {
        self.0 += other.0;
    }

    fn finish(self) -> u64 {
        self.0
    }
}

/// The sum of integers. It has room for 2⁶³ values, whatever they are, so it never overflows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sum(i128);

impl Aggregate for Sum {
    type Input = i64;
    type Output = i128;

    fn create(first: i64) -> Sum {
        Sum(first.into())
    }

    fn add(&mut self, next: i64) {
        self.0 += i128::from(next);
    }

    fn merge(&mut self, other: &Sum) {
        self.0 += other.0;
    }

    fn finish(self) -> i128 {
        self.0
    }
}

/// The smallest value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Min<T>(T);

impl<T: Data + Ord + Clone> Aggregate for Min<T> {
    type Input = T;
    type Output = T;

    fn create(first: T) -> Min<T> {
        Min(first)
    }

    fn add(&mut self, next: T) {
        if next < self.0 {
            self.0 = next;
        }
    }

    fn merge(&mut self, other: &Min<T>) {
        if other.0 < self.0 {
            self.0 = other.0.clone();
        }
    }

    fn finish(self) -> T {
        self.0
    }
}

/// The greatest value. With a tuple, the greatest by its first field: `Max<(u64, String)>`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Max<T>(T);

impl<T: Data + Ord + Clone> Aggregate for Max<T> {
    type Input = T;
    type Output = T;

    fn create(first: T) -> Max<T> {
        Max(first)
    }

    fn add(&mut self, next: T) {
        if next > self.0 {
            self.0 = next;
        }
    }

    fn merge(&mut self, other: &Max<T>) {
        if other.0 > self.0 {
            self.0 = other.0.clone();
        }
    }

    fn finish(self) -> T {
        self.0
    }
}

/// The mean of integers: their exact sum, and how many there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Average {
    sum: i128,
    count: u64,
}

/// What [`Average`] gives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mean {
    pub sum: i128,
    /// At least 1.
    pub count: u64,
}

impl Mean {
    /// The mean, rounded down.
    pub fn floor(self) -> i128 {
        self.sum.div_euclid(self.count.into())
    }

    /// The mean as nearly as an `f64` has it.
    pub fn as_f64(self) -> f64 {
        self.sum as f64 / self.count as f64
    }
}

impl Aggregate for Average {
    type Input = i64;
    type Output = Mean;

    fn create(first: i64) -> Average {
        Average { sum: first.into(), count: 1 }
    }

    fn add(&mut self, next: i64) {
        self.sum += i128::from(next);
        self.count += 1;
    }

    fn merge(&mut self, other: &Average) {
        self.sum += other.sum;
        self.count += other.count;
    }

    fn finish(self) -> Mean {
        Mean { sum: self.sum, count: self.count }
    }
}

/// Two at once: `(Count, Max<i64>)` takes `((), i64)`.
impl<A: Aggregate, B: Aggregate> Aggregate for (A, B) {
    type Input = (A::Input, B::Input);
    type Output = (A::Output, B::Output);

    fn create(first: Self::Input) -> (A, B) {
        (A::create(first.0), B::create(first.1))
    }

    fn add(&mut self, next: Self::Input) {
        self.0.add(next.0);
        self.1.add(next.1);
    }

    fn merge(&mut self, other: &(A, B)) {
        self.0.merge(&other.0);
        self.1.merge(&other.1);
    }

    fn finish(self) -> Self::Output {
        (self.0.finish(), self.1.finish())
    }
}

/// The `N` greatest values, the greatest first; fewer if there are fewer. Equal values count each.
///
/// In [`TumblingWindows`](super::TumblingWindows) it gives the top of each window; for the top of all time see
/// [`Ranking`](super::Ranking). For the smallest, wrap the values in [`std::cmp::Reverse`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Top<T, const N: usize>(Vec<T>);

impl<T: Ord, const N: usize> Top<T, N> {
    /// Adds a value; says whether it is among the greatest.
    pub(super) fn offer(&mut self, value: T) -> bool {
        let place = self.0.partition_point(|kept| *kept >= value);
        if place >= N {
            return false;
        }
        self.0.truncate(N - 1); // `place < N`, so N is at least 1.
        self.0.insert(place, value);
        true
    }

    pub(super) fn values(&self) -> &[T] {
        &self.0
    }
}

impl<T, const N: usize> Default for Top<T, N> {
    fn default() -> Top<T, N> {
        Top(Vec::new())
    }
}

impl<T: Data + Ord + Clone, const N: usize> Aggregate for Top<T, N> {
    type Input = T;
    type Output = Vec<T>;

    fn create(first: T) -> Top<T, N> {
        let mut top = Top::default();
        top.offer(first);
        top
    }

    fn add(&mut self, next: T) {
        self.offer(next);
    }

    fn merge(&mut self, other: &Top<T, N>) {
        for value in &other.0 {
            if self.0.len() == N && self.0.last().is_some_and(|last| last >= value) {
                break;
            }
            self.offer(value.clone());
        }
    }

    fn finish(self) -> Vec<T> {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// All ways to cut `values` in two parts and merge them.
    fn of<A: Aggregate>(values: &[A::Input]) -> Vec<A::Output>
    where
        A::Input: Clone,
    {
        let whole = |values: &[A::Input]| {
            let mut aggregate = A::create(values[0].clone());
            values[1..].iter().for_each(|value| aggregate.add(value.clone()));
            aggregate
        };
        let cut = |at: usize| {
            let mut first = whole(&values[..at]);
            first.merge(&whole(&values[at..]));
            let mut second = whole(&values[at..]);
            second.merge(&whole(&values[..at]));
            [first.finish(), second.finish()]
        };
        let mut results = vec![whole(values).finish()];
        results.extend((1..values.len()).flat_map(cut));
        results
    }

    #[test]
    fn merging_parts_gives_what_adding_all_gives() {
        let values = [3, -7, i64::MAX, 3, i64::MIN, i64::MIN];
        assert!(of::<Count>(&[(); 6]).iter().all(|&count| count == 6));
        assert!(of::<Sum>(&values).iter().all(|&sum| sum == -3 - i128::from(i64::MAX)));
        assert!(of::<Min<i64>>(&values).iter().all(|&min| min == i64::MIN));
        assert!(of::<Max<i64>>(&values).iter().all(|&max| max == i64::MAX));
        let top = of::<Top<i64, 3>>(&values);
        assert!(top.iter().all(|top| *top == [i64::MAX, 3, 3]), "{top:?}");
        let means = of::<Average>(&[-1, -2, -2]);
        assert!(means.iter().all(|mean| *mean == Mean { sum: -5, count: 3 } && mean.floor() == -2));
        let pairs = values.map(|value| ((), value));
        assert!(of::<(Count, Max<i64>)>(&pairs).iter().all(|&pair| pair == (6, i64::MAX)));
    }

    #[test]
    fn the_top_of_none_stays_empty() {
        let mut top = Top::<u8, 0>::create(1);
        top.add(2);
        assert!(top.finish().is_empty());
    }
}
