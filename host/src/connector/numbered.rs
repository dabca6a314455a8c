//! A source whose records are a function of their number.
//!
//! Invariant: the record of a number is the same in every run, whatever the time, the parallelism and the batch it is in.

use std::time::{Duration, Instant};

use super::id_blocks::{BLOCK, IdBlocks};
use super::rate::{Allowance, Rate};
use super::{BadOption, ConnectorContext, ConnectorError, Polled, SourceReader, SplitState};
use crate::element::Batch;

/// Rows of a batch at most, which are all of one split.
const BATCH_ROWS: u64 = BLOCK;

/// Makes records from their numbers.
pub trait MakeRecords: Send {
    /// The usual size of a record's value in bytes.
    fn value_bytes(&self) -> usize;
    /// Adds the records `first .. first + n`.
    fn make(&mut self, first: u64, n: u64, batch: &mut Batch);
}

/// One subtask of a numbered source.
pub struct NumberedReader<M> {
    blocks: IdBlocks,
    rate: Option<Rate>,
    maker: M,
}

/// The options that all numbered sources have.
#[derive(Clone, Copy, Debug)]
pub struct Numbers {
    pub splits: u32,
    pub count: Option<u64>,
    /// Records a second, by all subtasks together.
    pub rate: Option<f64>,
}

impl Numbers {
    pub fn validate(self) -> Result<(), BadOption> {
        super::id_blocks::validate_splits(self.splits)?;
        validate_rate(self.rate)
    }
}

/// A rate that is kept to is neither nothing nor more than can be counted.
pub fn validate_rate(rate: Option<f64>) -> Result<(), BadOption> {
    match rate {
        Some(rate) if !(0.001..=1e9).contains(&rate) => {
            Err(BadOption::new("rate", rate, "it is records a second, 0.001 to a thousand million"))
        }
        Some(_) | None => Ok(()),
    }
}

impl<M: MakeRecords> NumberedReader<M> {
    pub fn new(
        numbers: Numbers,
        maker: M,
        ctx: &ConnectorContext,
        subtask: u32,
    ) -> Result<NumberedReader<M>, ConnectorError> {
        let blocks = IdBlocks::open(numbers.splits, numbers.count, ctx, subtask)?;
        let share = blocks.share();
        let rate = numbers.rate.map(|rate| Rate::new(rate * share, Instant::now()));
        Ok(NumberedReader { blocks, rate, maker })
    }

    fn allowance(&mut self) -> Result<u64, Duration> {
        match self.rate.as_mut().map(|rate| rate.ask(BATCH_ROWS, Instant::now())) {
            None => Ok(BATCH_ROWS),
            Some(Allowance::Records(records)) => Ok(records),
            Some(Allowance::Wait(time)) => Err(time),
        }
    }
}

impl<M: MakeRecords> SourceReader for NumberedReader<M> {
    fn restore(&mut self, splits: &[SplitState]) -> Result<(), ConnectorError> {
        self.blocks.restore(splits)
    }

    fn poll(&mut self) -> Result<Polled, ConnectorError> {
        let rows = match self.allowance() {
            Ok(rows) => rows,
            Err(_) if self.blocks.has_ended() => return Ok(Polled::Ended),
            Err(time) => return Ok(Polled::Idle(time)),
        };
        let Some((first, n)) = self.blocks.take(rows) else { return Ok(Polled::Ended) };
        let mut batch = Batch::with_capacity(n as usize, n as usize * self.maker.value_bytes());
        self.maker.make(first, n, &mut batch);
        if let Some(rate) = &mut self.rate {
            rate.made(n);
        }
        Ok(Polled::Batch { split: self.blocks.split_of(first), first_offset: first, batch })
    }

    fn merges_splits(&self) -> bool {
        true
    }

    fn snapshot(&self) -> Vec<SplitState> {
        self.blocks.snapshot()
    }
}
