//! The script of a puppet, made up: mostly what a sensible operator would do, with lies in between.
//!
//! Invariant: a script fits where the puppet puts it, whatever is in it.

use crate::chance::Chance;
use crate::damage::damaged;
use crate::guest::puppet::{ARGUMENTS, OUTPUTS, Op, SCRIPT, SCRIPT_BYTES_MAX, TABLES};

/// Blocks end here at the latest, and what they point to begins.
const BLOCKS_BYTES_MAX: usize = 16 << 10;
/// Where imports put their answers; nothing else is there.
const ANSWERS: u32 = 3 << 16;
/// A level of the log.
const ERROR: u32 = 3;
/// One in so many things is a lie.
const LIES: usize = 80;

/// Keys that records, timers and state have. Only some belong to the subtask that is tried.
pub const KEYS: [&str; 12] = ["a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "l"];
pub const USER_KEYS: [&str; 3] = ["", "u", "v"];

/// What a call of an export is answered with if it is ok.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// Nothing.
    Unit,
    Rejections,
    Bytes,
    /// Whether keys change.
    Keys,
    Entries,
    Column,
}

/// A script that is being written.
pub struct Script<'p> {
    blocks: Vec<u8>,
    data: Vec<u8>,
    /// Those of the subtask.
    keys: &'p [&'p str],
    /// Whether a step may be one without end.
    pub spins: bool,
}

/// Pointer and length.
type List = [u32; 2];

impl<'p> Script<'p> {
    pub fn new(keys: &'p [&'p str], spins: bool) -> Script<'p> {
        Script { blocks: Vec::new(), data: Vec::new(), keys, spins }
    }

    /// The configuration that brings it to the puppet.
    pub fn config(&self) -> String {
        let mut bytes = (self.blocks.len() as u32).to_le_bytes().to_vec();
        bytes.extend_from_slice(&self.blocks);
        bytes.resize(4 + BLOCKS_BYTES_MAX, 0);
        bytes.extend_from_slice(&self.data);
        assert!(bytes.len() <= SCRIPT_BYTES_MAX, "{} bytes of a script", bytes.len());
        let letter = |half: u8| char::from(b'a' + half);
        bytes.iter().flat_map(|byte| [letter(byte >> 4), letter(byte & 15)]).collect()
    }

    /// The block of one call. `emits`: whether it may put something out.
    pub fn block(&mut self, chance: &mut Chance<'_, '_>, answer: Answer, rows: u32, emits: bool) {
        let mut steps = (0..chance.below(5)).map(|_| self.step(chance, emits)).collect::<Vec<_>>();
        if chance.one_in(40) {
            // As a panic of the SDK.
            let [pointer, length] = self.put(b"panicked at src/lib.rs:7");
            let mut arguments = [0; ARGUMENTS];
            arguments[..3].copy_from_slice(&[ERROR, pointer, length]);
            steps.extend([(Op::Log, arguments), (Op::Trap, [0; ARGUMENTS])]);
        }
        let answer = self.answer(chance, answer, rows);
        let bytes = 8 + steps.len() * 4 * (1 + ARGUMENTS);
        if self.blocks.len() + bytes > BLOCKS_BYTES_MAX {
            return;
        }
        chance.tell(|| format!("  steps {steps:x?}, answer at {answer:#x}"));
        self.blocks.extend_from_slice(&(steps.len() as u32).to_le_bytes());
        self.blocks.extend_from_slice(&answer.to_le_bytes());
        for (op, arguments) in steps {
            self.blocks.extend_from_slice(&(op as u32).to_le_bytes());
            self.blocks.extend(arguments.iter().flat_map(|argument| argument.to_le_bytes()));
        }
    }

    /// Puts bytes where the guest has them; none, if there is no more room.
    fn put(&mut self, bytes: &[u8]) -> List {
        const ROOM: usize = SCRIPT_BYTES_MAX - 4 - BLOCKS_BYTES_MAX;
        let from = self.data.len().next_multiple_of(8);
        if from + bytes.len() > ROOM {
            return [SCRIPT, 0];
        }
        self.data.resize(from, 0);
        let at = SCRIPT + 4 + (BLOCKS_BYTES_MAX + from) as u32;
        self.data.extend_from_slice(bytes);
        [at, bytes.len() as u32]
    }

    fn list(&mut self, chance: &mut Chance<'_, '_>, good: &[u8]) -> List {
        let [pointer, length] = if chance.one_in(LIES) {
            let bad = damaged(chance, good, &[]);
            self.put(&bad[..bad.len().min(4 << 10)])
        } else {
            self.put(good)
        };
        match chance.below(2 * LIES) {
            1 => [chance.word(), length],
            2 => [pointer, chance.word()],
            3 => [chance.word(), chance.word()],
            _ => [pointer, length],
        }
    }

    fn column(&mut self, chance: &mut Chance<'_, '_>, rows: &[&[u8]]) -> [u32; 4] {
        let mut offsets = 0u32.to_le_bytes().to_vec();
        let mut end = 0;
        for row in rows {
            end += row.len() as u32;
            offsets.extend_from_slice(&end.to_le_bytes());
        }
        if chance.one_in(2 * LIES) {
            offsets.clear();
        }
        let ([data, length], [offsets, offsets_length]) =
            (self.list(chance, &rows.concat()), self.list(chance, &offsets));
        [data, length, offsets, offsets_length]
    }

    fn some_keys(&self, chance: &mut Chance<'_, '_>, count: usize) -> Vec<&'p [u8]> {
        let key = |chance: &mut Chance<'_, '_>| {
            let foreign = chance.one_in(2 * LIES);
            if foreign || self.keys.is_empty() { *chance.pick(&KEYS) } else { *chance.pick(self.keys) }
        };
        (0..count).map(|_| key(chance).as_bytes()).collect()
    }

    fn words(chance: &mut Chance<'_, '_>, count: usize) -> Vec<Vec<u8>> {
        (0..count).map(|_| chance.bytes(12)).collect()
    }

    fn bitmap(chance: &mut Chance<'_, '_>, rows: usize) -> Vec<u8> {
        if chance.one_in(2) { Vec::new() } else { (0..rows.div_ceil(8)).map(|_| chance.byte()).collect() }
    }

    fn answers_at(chance: &mut Chance<'_, '_>) -> u32 {
        if chance.one_in(2 * LIES) { chance.word() } else { ANSWERS }
    }

    fn step(&mut self, chance: &mut Chance<'_, '_>, emits: bool) -> (Op, [u32; ARGUMENTS]) {
        const COMMON: [Op; 7] =
            [Op::GetMany, Op::WriteMany, Op::WriteMany, Op::Scan, Op::WriteTimers, Op::Emit, Op::Emit];
        const WITHOUT_OUTPUT: usize = 5;
        let common = if emits || chance.one_in(LIES) { &COMMON[..] } else { &COMMON[..WITHOUT_OUTPUT] };
        let op = if chance.one_in(4) { self.rare(chance) } else { *chance.pick(common) };
        let told = self.arguments(chance, op);
        let mut arguments = [0; ARGUMENTS];
        for (argument, told) in arguments.iter_mut().zip(told) {
            *argument = if chance.one_in(8 * LIES) { chance.word() } else { told };
        }
        (op, arguments)
    }

    fn rare(&self, chance: &mut Chance<'_, '_>) -> Op {
        const ASKS: [Op; 17] = [
            Op::Now,
            Op::Watermark,
            Op::Log,
            Op::CounterAdd,
            Op::Environment,
            Op::Stdin,
            Op::Stdout,
            Op::Stderr,
            Op::Terminal,
            Op::Monotonic,
            Op::Sleep,
            Op::Wall,
            Op::Preopens,
            Op::RandomBytes,
            Op::Random,
            Op::Seed,
            Op::Network,
        ];
        // Most handles that are made up are none.
        const WITH_HANDLES: [Op; 13] = [
            Op::Poll,
            Op::Block,
            Op::Read,
            Op::Print,
            Op::CheckWrite,
            Op::Socket,
            Op::Resolve,
            Op::Sync,
            Op::ErrorCode,
            Op::DropInput,
            Op::DropOutput,
            Op::DropPollable,
            Op::DropNetwork,
        ];
        const ENDS: [Op; 4] = [Op::Exit, Op::OpenStore, Op::Dig, Op::Trap];
        match chance.below(40) {
            0..28 => *chance.pick(&ASKS),
            28..33 => *chance.pick(&WITH_HANDLES),
            33..37 => *chance.pick(&[Op::SetHeap, Op::GrowMemory, Op::GrowTable, Op::Copy]),
            _ if self.spins => Op::Spin,
            _ => *chance.pick(&ENDS),
        }
    }

    /// What a step is passed, if nothing of it is a lie.
    fn arguments(&mut self, chance: &mut Chance<'_, '_>, op: Op) -> Vec<u32> {
        let handle = chance.below(6) as u32;
        match op {
            Op::Emit => self.emit(chance),
            Op::GetMany | Op::WriteMany | Op::Scan => self.of_state(chance, op),
            Op::WriteTimers => {
                let count = chance.below(4);
                let keys = self.some_keys(chance, count);
                let tags = Self::words(chance, count);
                let times = (0..count).flat_map(|_| time(chance).to_le_bytes()).collect::<Vec<_>>();
                let deletes = Self::bitmap(chance, count);
                let tags = tags.iter().map(Vec::as_slice).collect::<Vec<_>>();
                let (keys, tags) = (self.column(chance, &keys), self.column(chance, &tags));
                let (times, deletes) = (self.list(chance, &times), self.list(chance, &deletes));
                [&[chance.below(2) as u32][..], &keys, &tags, &times, &deletes].concat()
            }
            Op::Log => {
                let text = self.text(chance);
                vec![chance.below(4) as u32, text[0], text[1]]
            }
            Op::CounterAdd => {
                let (text, delta) = (self.text(chance), chance.long());
                vec![text[0], text[1], delta as u32, (delta >> 32) as u32]
            }
            Op::Exit => vec![chance.below(2) as u32],
            Op::Sleep => vec![chance.word(), chance.word()],
            Op::Poll => {
                let handles = (0..chance.below(4)).flat_map(|_| (chance.below(6) as u32).to_le_bytes());
                let handles = self.put(&handles.collect::<Vec<_>>());
                let count = if chance.one_in(LIES) { chance.word() } else { handles[1] / 4 };
                vec![handles[0], count, Self::answers_at(chance)]
            }
            Op::Read => vec![handle, chance.word(), chance.word(), Self::answers_at(chance)],
            Op::Print => {
                let text = self.text(chance);
                vec![handle, text[0], text[1], Self::answers_at(chance)]
            }
            Op::RandomBytes => {
                let wanted = if chance.one_in(4) { chance.long() } else { chance.below(100) as u64 };
                vec![wanted as u32, (wanted >> 32) as u32, Self::answers_at(chance)]
            }
            Op::Resolve => {
                let text = self.text(chance);
                vec![handle, text[0], text[1], Self::answers_at(chance)]
            }
            Op::CheckWrite | Op::Socket | Op::Sync | Op::ErrorCode => vec![handle, Self::answers_at(chance)],
            Op::Environment | Op::Terminal | Op::Wall | Op::Preopens | Op::Seed => vec![Self::answers_at(chance)],
            Op::Block | Op::DropInput | Op::DropOutput | Op::DropPollable | Op::DropNetwork => vec![handle],
            Op::SetHeap => vec![if chance.one_in(2) { chance.word() } else { ANSWERS }],
            Op::GrowMemory | Op::GrowTable => {
                vec![if chance.one_in(2) { chance.word() } else { chance.below(8) as u32 }]
            }
            Op::Copy => vec![chance.word(), chance.word(), chance.word() % 4_096],
            Op::Now | Op::Watermark | Op::Stdin | Op::Stdout | Op::Stderr | Op::Monotonic | Op::Random => Vec::new(),
            Op::Network | Op::OpenStore | Op::Dig | Op::Trap | Op::Spin => Vec::new(),
        }
    }

    fn text(&mut self, chance: &mut Chance<'_, '_>) -> List {
        let texts = ["hits", "", "a line\n", "\u{1b}[2J", "größe", "a name with spaces", "panicked at x"];
        let text = *chance.pick(&texts);
        let times = if chance.one_in(LIES) { 300 } else { 1 };
        self.list(chance, text.repeat(times).as_bytes())
    }

    fn emit(&mut self, chance: &mut Chance<'_, '_>) -> Vec<u32> {
        let rows = chance.below(5);
        let port = if chance.one_in(LIES) { chance.word() } else { chance.below(OUTPUTS as usize) as u32 };
        let (keys, values) = (Self::words(chance, rows), Self::words(chance, rows));
        let keys = self.column(chance, &keys.iter().map(Vec::as_slice).collect::<Vec<_>>());
        let values = self.column(chance, &values.iter().map(Vec::as_slice).collect::<Vec<_>>());
        let times = (0..rows).flat_map(|_| time(chance).to_le_bytes()).collect::<Vec<_>>();
        let times = self.list(chance, &times);
        // Of keys and values that aren't empty none is missing, so such bitmaps are lies mostly.
        let nulls = if chance.one_in(LIES) { chance.bytes(2 * rows.div_ceil(8)) } else { Vec::new() };
        let nulls = self.list(chance, &nulls);
        let headers = if chance.one_in(3) { headers(chance, rows) } else { Vec::new() };
        let headers = self.list(chance, &headers);
        [&[port, rows as u32][..], &keys, &values, &times, &nulls, &headers].concat()
    }

    fn of_state(&mut self, chance: &mut Chance<'_, '_>, op: Op) -> Vec<u32> {
        let table = if chance.one_in(LIES) { chance.word() } else { chance.below(TABLES.len()) as u32 };
        if op == Op::Scan {
            let key = self.some_keys(chance, 1);
            let (key, after) = (self.list(chance, key[0]), self.list(chance, b"u"));
            let (has_after, bytes_max) = (chance.below(2) as u32, chance.word());
            return [&[table][..], &key, &[has_after], &after, &[bytes_max, Self::answers_at(chance)]].concat();
        }
        let count = chance.below(5);
        let keys = self.some_keys(chance, count);
        let user_keys = (0..count).map(|_| chance.pick(&USER_KEYS).as_bytes()).collect::<Vec<_>>();
        let keys = self.column(chance, &keys);
        let user_keys = if chance.one_in(3) { [SCRIPT, 0, SCRIPT, 0] } else { self.column(chance, &user_keys) };
        if op == Op::GetMany {
            return [&[table][..], &keys, &user_keys, &[Self::answers_at(chance)]].concat();
        }
        let values = Self::words(chance, count);
        let values = self.column(chance, &values.iter().map(Vec::as_slice).collect::<Vec<_>>());
        let deletes = Self::bitmap(chance, count);
        let deletes = self.list(chance, &deletes);
        [&[table][..], &keys, &user_keys, &values, &deletes].concat()
    }

    /// Where the answer of a call lies.
    fn answer(&mut self, chance: &mut Chance<'_, '_>, answer: Answer, rows: u32) -> u32 {
        let words = |words: &[u32]| words.iter().flat_map(|word| word.to_le_bytes()).collect::<Vec<u8>>();
        let is_error = chance.one_in(8);
        let body = if is_error {
            let message = self.text(chance);
            let (kind, row) = (chance.below(3) as u32, chance.below(4) as u32);
            words(&[kind, chance.below(2) as u32, row, message[0], message[1]])
        } else {
            match answer {
                Answer::Unit => Vec::new(),
                Answer::Keys => vec![chance.below(2) as u8],
                Answer::Rejections => words(&self.rejections(chance, rows)),
                Answer::Bytes => {
                    let bytes = if chance.one_in(8) { vec![7; 3_000] } else { chance.bytes(64) };
                    words(&self.list(chance, &bytes))
                }
                Answer::Entries => {
                    let count = chance.below(6);
                    let keys = self.some_keys(chance, count);
                    let user_keys = (0..count).map(|_| chance.pick(&USER_KEYS).as_bytes()).collect::<Vec<_>>();
                    let values = Self::words(chance, count);
                    let values = values.iter().map(Vec::as_slice).collect::<Vec<_>>();
                    let columns = [keys, user_keys, values].map(|rows| self.column(chance, &rows));
                    words(&columns.concat())
                }
                Answer::Column => {
                    let values = Self::words(chance, rows as usize);
                    words(&self.column(chance, &values.iter().map(Vec::as_slice).collect::<Vec<_>>()))
                }
            }
        };
        let mut bytes = words(&[u32::from(is_error)]);
        bytes.extend_from_slice(&body);
        bytes.resize(bytes.len().max(56), 0);
        if chance.one_in(LIES) {
            bytes = damaged(chance, &bytes, &[]);
        }
        if chance.one_in(2 * LIES) { chance.word() } else { self.put(&bytes)[0] }
    }

    /// Rows in order, mostly.
    fn rejections(&mut self, chance: &mut Chance<'_, '_>, rows: u32) -> List {
        let mut rejected = (0..rows).filter(|_| chance.one_in(4)).collect::<Vec<_>>();
        if chance.one_in(LIES) {
            rejected.push(chance.word());
        }
        let mut list = Vec::new();
        for row in rejected {
            let message = self.text(chance);
            list.extend([row, message[0], message[1]].iter().flat_map(|word| word.to_le_bytes()));
        }
        let [pointer, length] = self.put(&list);
        [pointer, if chance.one_in(LIES) { chance.word() } else { length / 12 }]
    }
}

/// Times of timers and records; some at the ends of what there is.
pub fn time(chance: &mut Chance<'_, '_>) -> i64 {
    match chance.below(8) {
        0 => i64::MAX,
        1 => i64::MIN,
        2 => chance.long() as i64,
        _ => chance.below(100) as i64,
    }
}

/// Headers as in `ext`: offsets, then one header for some rows.
fn headers(chance: &mut Chance<'_, '_>, rows: usize) -> Vec<u8> {
    let (mut offsets, mut data) = (0u32.to_le_bytes().to_vec(), Vec::new());
    for _ in 0..rows {
        if chance.one_in(2) {
            let value = chance.bytes(5);
            data.extend_from_slice(&2u32.to_le_bytes());
            data.extend_from_slice(b"id");
            let length = if chance.one_in(3) { u32::MAX } else { value.len() as u32 };
            data.extend_from_slice(&length.to_le_bytes());
            data.extend_from_slice(if length == u32::MAX { &[] } else { &value });
        }
        offsets.extend_from_slice(&(data.len() as u32).to_le_bytes());
    }
    [offsets, data].concat()
}
