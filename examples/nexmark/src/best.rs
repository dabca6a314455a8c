//! All that share the highest rank.

use lockgate::blocks::Aggregate;
use lockgate::encoding::Data;
use serde::{Deserialize, Serialize};

/// Of pairs of a rank and a thing, the highest rank and all things that have it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Best<T> {
    rank: u64,
    things: Vec<T>,
}

impl<T: Data + Clone + Ord> Aggregate for Best<T> {
    type Input = (u64, T);
    /// The things are sorted.
    type Output = (u64, Vec<T>);

    fn create((rank, thing): (u64, T)) -> Best<T> {
        Best { rank, things: vec![thing] }
    }

    fn add(&mut self, (rank, thing): (u64, T)) {
        if rank > self.rank {
            self.rank = rank;
            self.things.clear();
        }
        if rank == self.rank {
            self.things.push(thing);
        }
    }

    fn merge(&mut self, other: &Best<T>) {
        if other.rank > self.rank {
            *self = other.clone();
        } else if other.rank == self.rank {
            self.things.extend_from_slice(&other.things);
        }
    }

    fn finish(mut self) -> (u64, Vec<T>) {
        self.things.sort_unstable();
        (self.rank, self.things)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ties_are_kept_and_the_lower_forgotten() {
        let mut best = Best::create((1, 'a'));
        best.add((3, 'c'));
        best.add((2, 'b'));
        let mut other = Best::create((3, 'a'));
        other.add((1, 'd'));
        best.merge(&other);
        best.merge(&Best::create((2, 'e')));
        assert_eq!(best.finish(), (3, vec!['a', 'c']));
    }
}
