//! The calls of a case, and what a host passes with them.

use lockgate_host::element::{Batch, Header, Row};
use lockgate_host::guest::TrialCall;
use lockgate_host::state::Clock;

use crate::chance::Chance;
use crate::guest::script::{Answer, time};

/// A call of the host.
#[derive(Clone, Debug)]
pub enum Call {
    Restore(Vec<Vec<u8>>),
    Process(u32, Batch),
    Timers(Clock, i64),
    Watermark(i64),
    Now(i64),
    Snapshot,
    Trim(u64),
    /// A process or a watermark on trial.
    Again(TrialCall),
    Close,
}

impl Call {
    pub fn any(chance: &mut Chance<'_, '_>, keys: &[&str]) -> Call {
        match chance.below(16) {
            0 => Call::Restore((0..chance.below(3)).map(|_| chance.bytes(32)).collect()),
            1 | 2 => Call::Watermark(time(chance)),
            3 | 4 => Call::Timers(Clock::EventTime, time(chance)),
            5 => Call::Timers(Clock::ProcessingTime, time(chance)),
            6 => Call::Now(time(chance)),
            7 | 8 => Call::Snapshot,
            9 => Call::Trim(chance.long()),
            10 => Call::Again(TrialCall::Process { port: 0, rows: records(chance, keys) }),
            11 if chance.one_in(2) => Call::Again(TrialCall::Watermark { timestamp: time(chance) }),
            11 => Call::Close,
            _ => Call::Process(chance.below(2) as u32, records(chance, keys)),
        }
    }

    /// Whether the puppet may put something out that counts.
    pub fn may_emit(&self) -> bool {
        matches!(self, Call::Process(..) | Call::Timers(..) | Call::Watermark(_))
    }

    /// What the puppet is to answer with, and to how many rows. None: it isn't called.
    pub fn answer(&self) -> Option<(Answer, u32)> {
        match self {
            Call::Process(_, rows) => Some((Answer::Rejections, rows.rows)),
            Call::Timers(..) => Some((Answer::Rejections, 2)),
            Call::Snapshot => Some((Answer::Bytes, 0)),
            Call::Restore(_) | Call::Watermark(_) | Call::Trim(_) | Call::Close => Some((Answer::Unit, 0)),
            // On trial it begins with the first block again.
            Call::Again(_) => Some((Answer::Bytes, 0)),
            Call::Now(_) => None,
        }
    }
}

fn records(chance: &mut Chance<'_, '_>, keys: &[&str]) -> Batch {
    let mut batch = Batch::default();
    for _ in 0..chance.below(5) {
        let value = chance.bytes(16);
        let key = (!keys.is_empty()).then(|| chance.pick(keys).as_bytes());
        batch.push(Row { key, value: (!chance.one_in(6)).then_some(&value), timestamp: time(chance) });
        if chance.one_in(4) {
            batch.push_header(Header { name: "trace", value: (!chance.one_in(3)).then_some(&value) });
        }
    }
    batch
}
