//! A guest that does what a script says: calls any import with any arguments, and answers every call with any bytes.
//!
//! The script comes with the configuration, two letters (`a` to `p`) for each byte, and lies at [`SCRIPT`] from then on. It begins
//! with the length of its blocks; each call of an export takes the next block: the number of its steps, where its answer lies, then the
//! steps, each of a number and sixteen arguments. Behind the blocks is what arguments and answers may point to. When the
//! blocks are used up, calls do nothing and succeed.
//!
//! Invariant: it is the same component in every case, so that it is compiled once.

use crate::wat_guest::{Guest, Migrating, RESULT, WasiImports};

/// Where the script lies in the guest's memory.
pub const SCRIPT: u32 = 4 << 16;
/// All that a script may be long.
pub const SCRIPT_BYTES_MAX: usize = 64 << 10;
/// Arguments of a step.
pub const ARGUMENTS: usize = 16;
/// What the puppet says that it has.
pub const OUTPUTS: u32 = 2;
/// In version 2: those of version 1 are migrated.
pub const TABLES: [(&str, u8, u32); 2] = [("one", 0, 2), ("many", 1, 2)];

const PAGES: u32 = 8;
const WASI_WIT: &str = include_str!("../../../src/guest/tests/wasi.wit");
const WASI_VERSION: &str = "0.2.6";

/// What a step can be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Op {
    Emit,
    GetMany,
    WriteMany,
    Scan,
    WriteTimers,
    Now,
    Watermark,
    Log,
    CounterAdd,
    Environment,
    Exit,
    Stdin,
    Stdout,
    Stderr,
    Terminal,
    Monotonic,
    Sleep,
    Wall,
    Preopens,
    Poll,
    Block,
    Read,
    Print,
    CheckWrite,
    RandomBytes,
    Random,
    Seed,
    Network,
    Socket,
    Resolve,
    Sync,
    ErrorCode,
    DropInput,
    DropOutput,
    DropPollable,
    DropNetwork,
    OpenStore,
    /// Says where the next list that it is given is to lie.
    SetHeap,
    GrowMemory,
    GrowTable,
    Copy,
    Dig,
    Trap,
    Spin,
}

/// How a step is made: its number, the name that it calls, what is passed (`w` a word, `l` a long of two words), and whether there is a
/// result to drop.
struct Step(Op, &'static str, &'static str, bool);

/// Those that are imports of the contract.
const CONTRACT: [Step; 9] = [
    Step(Op::Emit, "emit", "wwwwwwwwwwwwwwww", false),
    Step(Op::GetMany, "get_many", "wwwwwwwwww", false),
    Step(Op::WriteMany, "write_many", "wwwwwwwwwwwwwww", false),
    Step(Op::Scan, "scan", "wwwwwwww", false),
    Step(Op::WriteTimers, "write_timers", "wwwwwwwwwwwww", false),
    Step(Op::Now, "now", "", true),
    Step(Op::Watermark, "watermark", "", true),
    Step(Op::Log, "log", "www", false),
    Step(Op::CounterAdd, "counter_add", "wwl", false),
];

/// Those that are WASI's, with interface and function.
const WASI: [(Step, &str, &str); 28] = [
    (Step(Op::Environment, "environment", "w", false), "cli/environment", "get-environment"),
    (Step(Op::Exit, "exit", "w", false), "cli/exit", "exit"),
    (Step(Op::Stdin, "stdin", "", true), "cli/stdin", "get-stdin"),
    (Step(Op::Stdout, "stdout", "", true), "cli/stdout", "get-stdout"),
    (Step(Op::Stderr, "stderr", "", true), "cli/stderr", "get-stderr"),
    (Step(Op::Terminal, "terminal", "w", false), "cli/terminal-stdout", "get-terminal-stdout"),
    (Step(Op::Monotonic, "monotonic", "", true), "clocks/monotonic-clock", "now"),
    (Step(Op::Sleep, "sleep", "l", true), "clocks/monotonic-clock", "subscribe-duration"),
    (Step(Op::Wall, "wall", "w", false), "clocks/wall-clock", "now"),
    (Step(Op::Preopens, "preopens", "w", false), "filesystem/preopens", "get-directories"),
    (Step(Op::Poll, "poll", "www", false), "io/poll", "poll"),
    (Step(Op::Block, "block", "w", false), "io/poll", "[method]pollable.block"),
    (Step(Op::Read, "read", "wlw", false), "io/streams", "[method]input-stream.blocking-read"),
    (Step(Op::Print, "print", "wwww", false), "io/streams", "[method]output-stream.write"),
    (Step(Op::CheckWrite, "check_write", "ww", false), "io/streams", "[method]output-stream.check-write"),
    (Step(Op::RandomBytes, "random_bytes", "lw", false), "random/random", "get-random-bytes"),
    (Step(Op::Random, "random", "", true), "random/random", "get-random-u64"),
    (Step(Op::Seed, "seed", "w", false), "random/insecure-seed", "insecure-seed"),
    (Step(Op::Network, "network", "", true), "sockets/instance-network", "instance-network"),
    (Step(Op::Socket, "socket", "ww", false), "sockets/tcp-create-socket", "create-tcp-socket"),
    (Step(Op::Resolve, "resolve", "wwww", false), "sockets/ip-name-lookup", "resolve-addresses"),
    (Step(Op::Sync, "sync", "ww", false), "filesystem/types", "[method]descriptor.sync"),
    (Step(Op::ErrorCode, "error_code", "ww", false), "filesystem/types", "filesystem-error-code"),
    (Step(Op::DropInput, "drop_input", "w", false), "io/streams", "[resource-drop]input-stream"),
    (Step(Op::DropOutput, "drop_output", "w", false), "io/streams", "[resource-drop]output-stream"),
    (Step(Op::DropPollable, "drop_pollable", "w", false), "io/poll", "[resource-drop]pollable"),
    (Step(Op::DropNetwork, "drop_network", "w", false), "sockets/network", "[resource-drop]network"),
    (Step(Op::OpenStore, "open_store", "", true), "keyvalue/store", "open"),
];

/// Those that are its own.
const OWN: [(Op, &str); 7] = [
    (Op::SetHeap, "(global.set $heap ARG1)"),
    (Op::GrowMemory, "(drop (memory.grow ARG1))"),
    (Op::GrowTable, "(drop (table.grow $more (ref.null func) ARG1))"),
    (Op::Copy, "(memory.copy ARG1 ARG2 ARG3)"),
    (Op::Dig, "(call $dig)"),
    (Op::Trap, "unreachable"),
    (Op::Spin, "(loop $spin (br $spin))"),
];

/// The component. Every export of it takes a block of the script.
pub fn component() -> Vec<u8> {
    let run = || "(return (call $run))".to_owned();
    let wasi = WASI.iter().fold(WasiImports::default(), |mut imports, (step, interface, function)| {
        let interface = format!("wasi:{interface}@{WASI_VERSION}");
        let result = if step.3 { format!("(result {})", result_type(step.0)) } else { String::new() };
        let (name, parameters) = (step.1, step.2.replace('w', " i32").replace('l', " i64"));
        imports.core +=
            &format!("(import \"{interface}\" \"{function}\" (func ${name} (param{parameters}) {result}))\n");
        let import = format!("import {interface};\n");
        if !imports.world.contains(&import) {
            imports.world += &import;
        }
        imports
    });
    let guest = Guest {
        name: "puppet",
        inputs: vec![("in", false), ("rules", true)],
        outputs: vec!["out", "late"],
        tables: TABLES.to_vec(),
        timers: true,
        redistribution: 2,
        pages: PAGES,
        // Where the configuration lies, and its length.
        open: format!("(call $learn (local.get 6) (local.get 7)) {}", run()),
        restore: run(),
        process: run(),
        on_timers: run(),
        watermark: run(),
        snapshot: run(),
        trim: run(),
        close: run(),
        migrating: Some(Migrating { prepare: run(), migrate: run(), merge: run() }),
        extra: code(),
        wasi: WasiImports { packages: WASI_WIT.replace("VERSION", WASI_VERSION), ..wasi },
        ..Guest::default()
    };
    guest.component()
}

fn result_type(op: Op) -> &'static str {
    if matches!(op, Op::Monotonic | Op::Random) { "i64" } else { "i32" }
}

fn code() -> String {
    let argument = |number: usize| format!("(i32.load offset={} (local.get $at))", 4 * number);
    let called = CONTRACT.iter().chain(WASI.iter().map(|(step, ..)| step)).map(|Step(op, name, passed, has_result)| {
        let mut next = 1;
        let mut call = format!("(call ${name}");
        for kind in passed.chars() {
            match kind {
                'l' => call += &format!(" (i64.load offset={} (local.get $at))", 4 * next),
                _ => call += &format!(" {}", argument(next)),
            }
            next += if kind == 'l' { 2 } else { 1 };
        }
        (*op, if *has_result { format!("(drop {call}))") } else { format!("{call})") })
    });
    let own = OWN.iter().map(|(op, text)| {
        let filled = (1..=3).fold((*text).to_owned(), |text, n| text.replace(&format!("ARG{n}"), &argument(n)));
        (*op, filled)
    });
    let steps = called.chain(own).map(|(op, does)| {
        format!("(if (i32.eq (i32.load (local.get $at)) (i32.const {})) (then {does} (return)))\n", op as u32)
    });
    let steps = steps.collect::<String>();
    let step_bytes = 4 * (1 + ARGUMENTS);
    format!(
        r#"(table $more 1 funcref)
        (global $next (mut i32) (i32.const 0))
        (global $end (mut i32) (i32.const 0))
        (func $dig (call $dig) (call $dig))
        (func $half (param $at i32) (result i32) (i32.sub (i32.load8_u (local.get $at)) (i32.const 97)))
        (func $learn (param $from i32) (param $length i32) (local $to i32)
            (local.set $to (i32.const {SCRIPT}))
            (block $learnt (loop $more
                (br_if $learnt (i32.lt_u (local.get $length) (i32.const 2)))
                (i32.store8 (local.get $to) (i32.or
                    (i32.shl (call $half (local.get $from)) (i32.const 4))
                    (call $half (i32.add (local.get $from) (i32.const 1)))))
                (local.set $from (i32.add (local.get $from) (i32.const 2)))
                (local.set $to (i32.add (local.get $to) (i32.const 1)))
                (local.set $length (i32.sub (local.get $length) (i32.const 2)))
                (br $more)))
            (global.set $next (i32.const {}))
            (global.set $end (i32.add (i32.const {}) (i32.load (i32.const {SCRIPT})))))
        (func $run (result i32) (local $left i32) (local $answer i32)
            (if (i32.ge_u (global.get $next) (global.get $end)) (then (return (i32.const {RESULT}))))
            (local.set $left (i32.load (global.get $next)))
            (local.set $answer (i32.load offset=4 (global.get $next)))
            (global.set $next (i32.add (global.get $next) (i32.const 8)))
            (block $done (loop $more
                (br_if $done (i32.eqz (local.get $left)))
                (local.set $left (i32.sub (local.get $left) (i32.const 1)))
                (call $step (global.get $next))
                (global.set $next (i32.add (global.get $next) (i32.const {step_bytes})))
                (br $more)))
            (local.get $answer))
        (func $step (param $at i32)
            {steps})"#,
        SCRIPT + 4,
        SCRIPT + 4,
    )
}
