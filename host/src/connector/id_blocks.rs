//! Which numbers of an endless or bounded sequence a subtask makes, and where it stands.
//!
//! Numbers `0 .. count` are cut into blocks of [`BLOCK`]; block `b` belongs to split `b % splits`, and split `s` to subtask
//! `s % parallelism`. A position is the next number of a split, so that it means the same at every parallelism.
//!
//! Invariant: every number below `count` is in exactly one split, and a subtask gives the smallest number it has first.

use serde::{Deserialize, Serialize};

use super::{BadOption, ConnectorContext, ConnectorError, SplitState};
use crate::id::{SplitId, SubtaskId};

/// Numbers that stay together.
pub const BLOCK: u64 = 1024;
/// More splits than this make no sense: each has a position in every checkpoint.
const SPLITS_MAX: u32 = 4096;
/// Greater numbers are never made: these are thirty years of ten million a second. Of all below, blocks and times can be computed.
const NUMBER_MAX: u64 = 1 << 53;

/// What every numbered source asks of its options.
pub fn validate_splits(splits: u32) -> Result<(), BadOption> {
    let allowed = (1..=SPLITS_MAX).contains(&splits);
    allowed.then_some(()).ok_or(BadOption::new("splits", splits, "it must be 1 to 4096"))
}

/// The splits of one subtask.
#[derive(Debug)]
pub struct IdBlocks {
    subtask: SubtaskId,
    splits: u32,
    parallelism: u32,
    /// The first number that isn't made; `u64::MAX` for an endless sequence.
    end: u64,
    own: Vec<Split>,
}

#[derive(Debug)]
struct Split {
    index: u32,
    /// The next number; at or after `end` if the split has ended.
    next: u64,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Position {
    next: u64,
}

impl IdBlocks {
    /// The beginning of a subtask's splits.
    pub fn open(
        splits: u32,
        count: Option<u64>,
        ctx: &ConnectorContext,
        subtask: u32,
    ) -> Result<IdBlocks, ConnectorError> {
        if ctx.parallelism > splits {
            return Err(ConnectorError::Refused {
                name: ctx.name.clone(),
                problem: format!("parallelism is {} but there are only {splits} splits to share", ctx.parallelism),
                advice: "lower parallelism, or raise splits before the job's first run".to_owned(),
            });
        }
        let own = (subtask..splits).step_by(ctx.parallelism as usize);
        let own = own.map(|index| Split { index, next: u64::from(index) * BLOCK }).collect();
        let subtask = SubtaskId { operator: ctx.name.clone(), index: subtask };
        Ok(IdBlocks { subtask, splits, parallelism: ctx.parallelism, end: count.unwrap_or(u64::MAX), own })
    }

    /// Which part of all splits is this subtask's.
    pub fn share(&self) -> f64 {
        self.own.len() as f64 / f64::from(self.splits)
    }

    /// Whether there are no more numbers.
    pub fn has_ended(&self) -> bool {
        self.own.iter().all(|split| split.next >= self.end)
    }

    /// The next numbers, `first .. first + n` with `1 <= n <= max`; nothing if there are no more.
    pub fn take(&mut self, max: u64) -> Option<(u64, u64)> {
        assert!(max > 0, "asked for at least one");
        let split = self.own.iter_mut().min_by_key(|split| split.next)?;
        let first = split.next;
        let block_end = (first / BLOCK + 1) * BLOCK;
        let n = max.min(block_end - first).min(self.end.saturating_sub(first));
        if n == 0 {
            return None;
        }
        split.next = first + n;
        if split.next == block_end {
            split.next += (u64::from(self.splits) - 1) * BLOCK;
        }
        Some((first, n))
    }

    /// The split that a number belongs to.
    pub fn split_of(&self, number: u64) -> SplitId {
        SplitId::new(&self.split_name((number / BLOCK % u64::from(self.splits)) as u32))
    }

    pub fn snapshot(&self) -> Vec<SplitState> {
        let position = |next| serde_json::to_value(Position { next }).expect("a number is JSON");
        let state = |split: &Split| SplitState { split: self.split_name(split.index), position: position(split.next) };
        self.own.iter().map(state).collect()
    }

    /// Takes this subtask's splits out of those of all.
    pub fn restore(&mut self, splits: &[SplitState]) -> Result<(), ConnectorError> {
        for state in splits {
            let refuse = |problem: String| ConnectorError::Snapshot {
                subtask: self.subtask.clone(),
                what: state.split.clone(),
                problem,
            };
            let (index, of) = parse_name(&state.split).ok_or_else(|| refuse("it is no numbered split".to_owned()))?;
            if of != self.splits {
                return Err(refuse(format!("splits was {of} and is {} now: set splits = {of}", self.splits)));
            }
            let position = Position::deserialize(&state.position).map_err(|error| refuse(error.to_string()))?;
            if index >= of || position.next / BLOCK % u64::from(of) != u64::from(index) {
                return Err(refuse(format!("{} is no number of that split", position.next)));
            }
            if position.next > NUMBER_MAX {
                return Err(refuse(format!("{} is greater than all numbers that are made", position.next)));
            }
            if index % self.parallelism == self.subtask.index {
                self.own[(index / self.parallelism) as usize].next = position.next;
            }
        }
        Ok(())
    }

    fn split_name(&self, index: u32) -> String {
        format!("{index}/{}", self.splits)
    }
}

fn parse_name(name: &str) -> Option<(u32, u32)> {
    let (index, splits) = name.split_once('/')?;
    Some((index.parse().ok()?, splits.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::super::test_ctx;
    use super::*;

    fn drain(blocks: &mut IdBlocks, max: u64, limit: usize) -> Vec<u64> {
        let mut ids = Vec::new();
        while ids.len() < limit {
            let Some((first, n)) = blocks.take(max.min((limit - ids.len()) as u64)) else { break };
            ids.extend(first..first + n);
        }
        ids
    }

    fn open_all(count: u64, parallelism: u32) -> Vec<IdBlocks> {
        let ctx = test_ctx("numbers", parallelism);
        (0..parallelism).map(|i| IdBlocks::open(8, Some(count), &ctx, i).expect("enough splits")).collect()
    }

    #[test]
    fn every_number_is_made_once_and_in_order_within_a_subtask() {
        for count in [0, 1, 1023, 1024, 1025, 8192, 20_000] {
            for parallelism in [1, 2, 3, 8] {
                let mut all = Vec::new();
                for mut subtask in open_all(count, parallelism) {
                    let ids = drain(&mut subtask, 700, usize::MAX);
                    assert!(ids.is_sorted());
                    assert_eq!(subtask.take(1), None);
                    all.extend(ids);
                }
                all.sort_unstable();
                assert_eq!(all, (0..count).collect::<Vec<_>>());
            }
        }
    }

    #[test]
    fn a_position_means_the_same_at_every_parallelism() {
        let mut seen = Vec::new();
        let mut positions = Vec::new();
        for (i, mut subtask) in open_all(30_000, 3).into_iter().enumerate() {
            seen.extend(drain(&mut subtask, 333, 2_500 + i * 1_777));
            positions.extend(subtask.snapshot());
        }
        for mut subtask in open_all(30_000, 2) {
            subtask.restore(&positions).expect("own positions");
            seen.extend(drain(&mut subtask, 4_096, usize::MAX));
        }
        seen.sort_unstable();
        assert_eq!(seen, (0..30_000).collect::<Vec<_>>());
    }

    #[test]
    fn positions_of_something_else_are_refused() {
        let state = |split: &str, position: serde_json::Value| SplitState { split: split.to_owned(), position };
        let good = serde_json::json!({ "next": 1024 });
        let subtask = || open_all(10, 1).remove(0);
        assert!(subtask().restore(&[state("1/8", good.clone())]).is_ok());
        for (split, position, says) in [
            ("1/16", good.clone(), "set splits = 16"),
            ("a.txt", good.clone(), "no numbered split"),
            ("2/8", good.clone(), "no number of that split"),
            ("9/8", good, "no number of that split"),
            ("1/8", serde_json::json!({ "next": -1 }), "-1"),
            ("7/8", serde_json::json!({ "next": u64::MAX }), "greater than all numbers"),
        ] {
            let error = subtask().restore(&[state(split, position)]).expect_err(split).to_string();
            assert!(error.contains(says), "{error}");
        }
        assert!(IdBlocks::open(8, None, &test_ctx("numbers", 9), 0).is_err());
    }
}
