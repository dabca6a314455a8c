//! A rejected record never was, whatever it had emitted, changed or set before.
//!
//! An operator runs random programs, some of which fail in the end. One that skips those from the start is the model.

use lockgate::encoding::{decode, encode};
use lockgate::prelude::*;
use lockgate::testing::{Harness, TestRecord};
use lockgate::{ErrorKind, Rejection};
use proptest::prelude::*;
use serde::{Deserialize, Serialize};

#[derive(Clone, Debug, Serialize, Deserialize)]
enum Command {
    Add(u64),
    Set(u64),
    Take,
    Remove,
    /// Makes the note longer by so many bytes.
    Note(u16),
    Forget,
    Insert(u8, u16),
    Append(u8, u16),
    Delete(u8),
    ClearMap,
    Entries,
    Push(u16),
    Elements,
    ClearList,
    /// So many records to an output.
    Emit(bool, u16),
    /// A record without key, value or either.
    EmitMissing(bool, bool),
    /// A header of so many bytes for what is emitted after it.
    Header(u16),
    ClearHeaders,
    SetTimer(bool, i64, Vec<Command>),
    DeleteTimer(bool, i64),
    Fail,
}

struct Machine {
    number: Value<u64>,
    note: Value<String>,
    map: Map<u8, String>,
    list: List<String>,
    side: Output,
    timers: Timers,
    /// The model.
    skips: bool,
}

impl Operator for Machine {
    fn new(declare: &mut Declaration) -> Machine {
        Machine {
            number: declare.value("number"),
            note: declare.value("note"),
            map: declare.map("map"),
            list: declare.list("list"),
            side: declare.output("side"),
            timers: declare.timers(),
            skips: false,
        }
    }

    fn open(&mut self, ctx: &mut OpenContext<'_>) -> Result<(), Error> {
        ctx.limit_cache(1 << 20);
        self.skips = ctx.config()?;
        Ok(())
    }

    fn process(&mut self, record: Record<'_>, ctx: &mut Context<'_>) -> Result<(), Error> {
        self.run(record.value().unwrap_or_default(), record.key(), ctx)
    }

    fn timer(&mut self, timer: Timer<'_>, ctx: &mut Context<'_>) -> Result<(), Error> {
        self.run(timer.tag(), Some(timer.key()), ctx)
    }
}

impl Machine {
    fn run(&mut self, program: &[u8], key: Option<&[u8]>, ctx: &mut Context<'_>) -> Result<(), Error> {
        let program = decode::<Vec<Command>>(program)?;
        let fails = program.iter().any(|command| matches!(command, Command::Fail));
        if self.skips && fails {
            return Ok(());
        }
        program.into_iter().try_for_each(|command| self.step(command, key, ctx))
    }

    fn step(&mut self, command: Command, key: Option<&[u8]>, ctx: &mut Context<'_>) -> Result<(), Error> {
        let text = |length: u16| "x".repeat(length.into());
        match command {
            Command::Add(n) => {
                let sum = self.number.update(ctx, |sum| sum.unwrap_or(0).wrapping_add(n))?;
                ctx.emit_fmt(key, format_args!("{sum}"));
            }
            Command::Set(n) => self.number.set(ctx, n)?,
            Command::Take => {
                let taken = self.number.take(ctx)?;
                ctx.emit_fmt(key, format_args!("{taken:?}"));
            }
            Command::Remove => self.number.remove(ctx)?,
            Command::Note(length) => {
                let length = self.note.modify(ctx, |note| {
                    note.push_str(&text(length));
                    note.len()
                })?;
                ctx.emit_fmt(key, format_args!("{length}"));
            }
            Command::Forget => drop(self.note.take(ctx)?),
            Command::Insert(at, length) => self.map.insert(ctx, &at, text(length))?,
            Command::Append(at, length) => {
                let value = self.map.update(ctx, &at, |old| old.unwrap_or_default() + &text(length))?;
                ctx.emit_fmt(key, format_args!("{}", value.len()));
            }
            Command::Delete(at) => self.map.remove(ctx, &at)?,
            Command::ClearMap => self.map.clear(ctx)?,
            Command::Entries => {
                let mut entries = self.map.iter(ctx)?;
                while let Some((at, value)) = entries.next(ctx)? {
                    ctx.emit_fmt(key, format_args!("{at} {}", value.len()));
                }
            }
            Command::Push(length) => self.list.push(ctx, text(length))?,
            Command::Elements => {
                let lengths = self.list.to_vec(ctx)?.iter().map(String::len).collect::<Vec<_>>();
                let length = self.list.len(ctx)?;
                ctx.emit_fmt(key, format_args!("{lengths:?} of {length}"));
            }
            Command::ClearList => self.list.clear(ctx)?,
            Command::Emit(side, count) => {
                let output = if side { self.side } else { Output::MAIN };
                (0..count).for_each(|n| ctx.emit_to(output, key, n.to_string()));
            }
            Command::EmitMissing(no_key, no_value) => {
                ctx.emit(key.filter(|_| !no_key), Some("there").filter(|_| !no_value));
            }
            Command::Header(length) => ctx.add_header("header", text(length)),
            Command::ClearHeaders => ctx.clear_headers(),
            Command::SetTimer(true, time, program) => {
                self.timers.set_event_time(ctx, time, &encode(&program)?)?;
            }
            Command::SetTimer(false, time, program) => {
                self.timers.set_processing_time(ctx, time, &encode(&program)?)?;
            }
            Command::DeleteTimer(true, time) => {
                self.timers.delete_event_time(ctx, time, &encode(&Vec::<Command>::new())?)?
            }
            Command::DeleteTimer(false, time) => {
                self.timers.delete_processing_time(ctx, time, &encode(&Vec::<Command>::new())?)?
            }
            Command::Fail => return Err("x".parse::<u64>().expect_err("no number").into()),
        }
        Ok(())
    }
}

fn command(depth: u32) -> BoxedStrategy<Command> {
    let length = || prop_oneof![8 => 0..20u16, 1 => 0..20_000u16];
    let count = prop_oneof![6 => 0..4u16, 1 => 0..5000u16];
    let timed = if depth == 0 { Just(Vec::new()).boxed() } else { program(depth - 1) };
    prop_oneof![
        2 => any::<u64>().prop_map(Command::Add),
        2 => any::<u64>().prop_map(Command::Set),
        1 => Just(Command::Take),
        1 => Just(Command::Remove),
        2 => length().prop_map(Command::Note),
        1 => Just(Command::Forget),
        3 => (0..6u8, length()).prop_map(|(at, length)| Command::Insert(at, length)),
        3 => (0..6u8, length()).prop_map(|(at, length)| Command::Append(at, length)),
        2 => (0..6u8).prop_map(Command::Delete),
        1 => Just(Command::ClearMap),
        2 => Just(Command::Entries),
        3 => length().prop_map(Command::Push),
        2 => Just(Command::Elements),
        1 => Just(Command::ClearList),
        2 => (any::<bool>(), count).prop_map(|(side, count)| Command::Emit(side, count)),
        1 => (any::<bool>(), any::<bool>()).prop_map(|(key, value)| Command::EmitMissing(key, value)),
        2 => length().prop_map(Command::Header),
        1 => Just(Command::ClearHeaders),
        3 => (any::<bool>(), 0..50i64, timed).prop_map(|(clock, time, program)| Command::SetTimer(clock, time, program)),
        1 => (any::<bool>(), 0..50i64).prop_map(|(clock, time)| Command::DeleteTimer(clock, time)),
    ]
    .boxed()
}

fn program(depth: u32) -> BoxedStrategy<Vec<Command>> {
    (prop::collection::vec(command(depth), 0..6), prop::bool::weighted(0.4))
        .prop_map(|(mut program, fails)| {
            program.extend(fails.then_some(Command::Fail));
            program
        })
        .boxed()
}

#[derive(Clone, Debug)]
enum Step {
    Batch(Vec<(Option<u8>, Vec<Command>)>),
    Watermark(i64),
    Now(i64),
    Trim,
    Snapshot,
    Recover,
}

fn step() -> impl Strategy<Value = Step> {
    let record = (prop::option::weighted(0.95, 0..5u8), program(1));
    prop_oneof![
        8 => prop::collection::vec(record, 0..12).prop_map(Step::Batch),
        2 => (0..60i64).prop_map(Step::Watermark),
        2 => (0..60i64).prop_map(Step::Now),
        2 => Just(Step::Trim),
        1 => Just(Step::Snapshot),
        1 => Just(Step::Recover),
    ]
}

fn run(harness: &mut Harness<Machine>, step: &Step) -> Result<(), Error> {
    match step {
        Step::Batch(records) => harness.process(records.iter().map(|(key, program)| {
            // A record without a key is bad from its first use of state on, which a model can't foresee.
            let program = if key.is_some() { &program[..] } else { &[Command::Fail] };
            let key = key.map(|key| vec![key; usize::from(key) * 6]);
            let record = TestRecord::from((key, encode(program).expect("a program"), 7));
            if program.len() % 2 == 0 { record } else { record.with_header("length", program.len().to_string()) }
        })),
        Step::Watermark(time) => harness.advance_watermark(*time),
        Step::Now(time) => harness.advance_processing_time(*time),
        Step::Trim => harness.trim(0),
        Step::Snapshot => harness.snapshot().map(drop),
        Step::Recover => harness.recover(),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, max_shrink_iters: 2000, ..ProptestConfig::default() })]

    #[test]
    fn a_rejected_record_never_was(steps in prop::collection::vec(step(), 1..30)) {
        let mut real = Harness::<Machine>::open_rejecting("false").expect("a configuration");
        let mut model = Harness::<Machine>::open_with("true").expect("a configuration");
        for step in &steps {
            run(&mut real, step).expect("bad records only");
            run(&mut model, step).expect("good records only");
            for output in ["out", "side"] {
                prop_assert_eq!(real.take_output_of(output), model.take_output_of(output));
            }
            for clock in [Clock::EventTime, Clock::ProcessingTime] {
                prop_assert_eq!(real.timers(clock), model.timers(clock));
            }
            for rejection in real.take_rejections() {
                prop_assert_eq!(rejection.message, "invalid digit found in string");
            }
        }
        for key in (0..5u8).map(|key| vec![key; usize::from(key) * 6]) {
            prop_assert_eq!(real.value::<u64>("number", &key), model.value::<u64>("number", &key));
            prop_assert_eq!(real.value::<String>("note", &key), model.value::<String>("note", &key));
            prop_assert_eq!(real.map::<u8, String>("map", &key), model.map::<u8, String>("map", &key));
            prop_assert_eq!(real.list::<String>("list", &key), model.list::<String>("list", &key));
        }
    }
}

fn value(program: &[Command]) -> Vec<u8> {
    encode(program).expect("a program")
}

#[test]
fn rejections_name_their_rows_and_the_others_are_processed() -> Result<(), Error> {
    let mut harness = Harness::<Machine>::open_rejecting("false")?;
    let bad = [Command::Add(100), Command::Emit(false, 9000), Command::Fail];
    let programs =
        [value(&[Command::Add(1)]), value(&bad), value(&[Command::Add(2)]), value(&[Command::Fail]), value(&bad)];
    harness.process(programs.map(|program| ("k", program)))?;
    assert_eq!(harness.take_output(), [("k", "1"), ("k", "3")]);
    let rejections = harness.take_rejections();
    assert_eq!(rejections.iter().map(|rejection| rejection.row).collect::<Vec<_>>(), [1, 3, 4]);
    assert_eq!(rejections[0], Rejection { row: 1, message: "invalid digit found in string".to_owned() });
    Ok(())
}

#[test]
fn where_rejecting_is_not_allowed_a_bad_record_fails_the_call() {
    let mut harness = Harness::<Machine>::open_with("false").expect("a configuration");
    let records = [value(&[Command::Add(1)]), value(&[Command::Fail])].map(|program| ("k", program));
    let error = harness.process(records).expect_err("a bad record");
    assert_eq!((error.kind(), error.row()), (ErrorKind::BadRecord, Some(1)));
}

/// Fails in ways that aren't the record's fault.
struct Failing;

impl Operator for Failing {
    fn new(_: &mut Declaration) -> Failing {
        Failing
    }

    fn process(&mut self, record: Record<'_>, _: &mut Context<'_>) -> Result<(), Error> {
        match record.value_str()? {
            "transient" => Err(Error::transient("later")),
            "fatal" => Err(Error::fatal("never")),
            _ => Ok(()),
        }
    }

    fn watermark(&mut self, _: i64, _: &mut Context<'_>) -> Result<(), Error> {
        Err(Error::bad_record("there is none"))
    }
}

#[test]
fn what_is_not_a_record_s_fault_ends_the_call_all_the_same() {
    for (value, kind) in [("transient", ErrorKind::Transient), ("fatal", ErrorKind::Fatal)] {
        let mut harness = Harness::<Failing>::open_rejecting("{}").expect("no configuration");
        let error = harness.process([("k", "fine"), ("k", value)]).expect_err(value);
        assert_eq!((error.kind(), error.row()), (kind, Some(1)));
        assert!(harness.take_rejections().is_empty());
    }
    let mut harness = Harness::<Failing>::open_rejecting("{}").expect("no configuration");
    let error = harness.advance_watermark(1).expect_err("no record");
    assert_eq!((error.kind(), error.row()), (ErrorKind::Fatal, None));
}
