//! Components that import WASI get answers, and nothing of the machine is in them.

use super::guest::{DATA, Guest, RESULT, TEXT, WasiImports, log, store};
use super::*;
use crate::guest::wasi::HANDLES_MAX;
use crate::guest::{Call, Emitted, Failure, Misuse, OperatorInstance};

const WIT: &str = include_str!("wasi.wit");
pub const VERSION: &str = "0.2.3";

/// Core functions that a guest may call, with the interface of each.
const FUNCTIONS: [(&str, &str, &str, &str); 20] = [
    ("cli/environment", "get-environment", "get_environment", "(param i32)"),
    ("cli/environment", "get-arguments", "get_arguments", "(param i32)"),
    ("cli/environment", "initial-cwd", "initial_cwd", "(param i32)"),
    ("cli/exit", "exit", "exit", "(param i32)"),
    ("cli/stdin", "get-stdin", "stdin", "(result i32)"),
    ("cli/stdout", "get-stdout", "stdout", "(result i32)"),
    ("cli/stderr", "get-stderr", "stderr", "(result i32)"),
    ("cli/terminal-stdout", "get-terminal-stdout", "terminal", "(param i32)"),
    ("clocks/monotonic-clock", "now", "monotonic", "(result i64)"),
    ("clocks/monotonic-clock", "subscribe-duration", "sleep", "(param i64) (result i32)"),
    ("clocks/wall-clock", "now", "wall", "(param i32)"),
    ("filesystem/preopens", "get-directories", "preopens", "(param i32)"),
    ("io/poll", "poll", "poll", "(param i32 i32 i32)"),
    ("io/poll", "[method]pollable.block", "block", "(param i32)"),
    ("io/streams", "[method]input-stream.blocking-read", "read", "(param i32 i64 i32)"),
    ("io/streams", "[method]output-stream.write", "print", "(param i32 i32 i32 i32)"),
    ("random/random", "get-random-u64", "random", "(result i64)"),
    ("random/random", "get-random-bytes", "random_bytes", "(param i64 i32)"),
    ("random/insecure-seed", "insecure-seed", "seed", "(param i32)"),
    ("keyvalue/store", "open", "open_store", "(result i32)"),
];
const SOCKETS: [(&str, &str, &str, &str); 3] = [
    ("sockets/instance-network", "instance-network", "network", "(result i32)"),
    ("sockets/tcp-create-socket", "create-tcp-socket", "socket", "(param i32 i32)"),
    ("sockets/ip-name-lookup", "resolve-addresses", "resolve", "(param i32 i32 i32 i32)"),
];

/// A guest that may call the functions that its text names.
pub fn guest_of(version: &str, process: &str) -> Guest {
    let used =
        FUNCTIONS.iter().chain(&SOCKETS).filter(|(_, _, short, _)| process.contains(&format!("(call ${short} ")));
    let mut wasi = WasiImports { packages: WIT.replace("VERSION", version), ..WasiImports::default() };
    for (interface, function, short, signature) in used {
        let interface = format!("wasi:{interface}@{version}");
        wasi.core += &format!("(import \"{interface}\" \"{function}\" (func ${short} {signature}))\n");
        let import = format!("import {interface};\n");
        if !wasi.world.contains(&import) {
            wasi.world += &import;
        }
    }
    Guest { wasi, process: process.to_owned(), ..Guest::default() }
}

/// Adds a number (i64) to the counter `n`.
pub fn count(number: &str) -> String {
    format!(
        "(i32.store8 (i32.const {TEXT}) (i32.const {})) (call $counter_add (i32.const {TEXT}) (i32.const 1) {number})",
        u32::from(b'n')
    )
}

/// Traps unless the 32 bits at `offset` of [`DATA`] are these.
fn expect(offset: u32, word: u32) -> String {
    format!("(if (i32.ne (i32.load (i32.const {})) (i32.const {word})) (then (unreachable)))", DATA + offset)
}

/// Fills what an answer is written to, so that an answer of zeros is one.
fn dirty() -> String {
    format!("(i64.store (i32.const {DATA}) (i64.const -1)) (i64.store (i32.const {}) (i64.const -1))", DATA + 8)
}

/// Prints a text through a stream.
fn print(stream: &str, text: impl AsRef<[u8]>) -> String {
    let length = text.as_ref().len();
    format!(
        "{} (call $print (call ${stream} ) (i32.const {TEXT}) (i32.const {length}) (i32.const {DATA})) {}",
        store(TEXT, text),
        expect_ok()
    )
}

fn expect_ok() -> String {
    format!("(if (i32.load8_u (i32.const {DATA})) (then (unreachable)))")
}

fn run(guest: &Guest) -> Result<(), OperatorError> {
    open(guest).process(0, &batch(&["a"]), &mut Emitted::new()).map(|_| ())
}

fn failure(process: &str) -> Failure {
    *run(&guest_of(VERSION, process)).expect_err("it fails").failure
}

/// What the counter `n` has after `process`, call by call, each at its time.
pub fn counted(guest: &Guest, index: u32, times_ms: &[i64]) -> Vec<u64> {
    let plugin = load_bytes(&guest.component()).expect("it loads");
    let context = InstanceContext { subtask: SubtaskId { operator: name("op"), index }, ..context(Limits::default()) };
    let counters = context.counters.clone();
    let mut instance = plugin.instantiate(context).expect("it opens");
    let mut before = 0;
    let call = |now_ms: &i64| {
        instance.set_now(*now_ms);
        instance.process(0, &batch(&["a"]), &mut Emitted::new()).expect("it counts");
        let all = counters.read().get(&name("n")).copied().unwrap_or(0);
        all - std::mem::replace(&mut before, all)
    };
    times_ms.iter().map(call).collect()
}

#[test]
fn every_release_of_wasi_0_2_links_and_others_are_refused_by_name() {
    let process = count("(i64.extend_i32_u (call $stdin ))");
    for version in ["0.2.0", "0.2.3", "0.2.6", "0.2.17"] {
        run(&guest_of(version, &process)).expect(version);
    }
    let problem = refusal(&guest_of("0.3.0", &process).component());
    assert!(problem.to_string().contains("wasi:cli/stdin@0.3.0"), "{problem}");
}

#[test]
fn wasi_imports_are_known_as_such() {
    let plugin = load_bytes(&guest_of(VERSION, "(drop (call $stdin ))").component()).expect("it loads");
    let imports = plugin.interface().wasi_imports().collect::<Vec<_>>();
    assert!(imports.contains(&&"wasi:cli/stdin@0.2.3".to_owned()), "{imports:?}");
    assert!(imports.iter().all(|import| import.starts_with("wasi:")), "{imports:?}");
}

#[test]
fn clocks_show_the_time_of_the_call_and_the_monotonic_one_never_goes_back() {
    let wall = format!(
        "(call $wall (i32.const {DATA})) {}",
        count(&format!(
            "(i64.add (i64.mul (i64.load (i32.const {DATA})) (i64.const 1000000000))
                (i64.extend_i32_u (i32.load (i32.const {}))))",
            DATA + 8
        ))
    );
    let times = [1_700_000_000_123, 1_700_000_000_001, -5];
    let shown = counted(&guest_of(VERSION, &wall), 0, &times);
    assert_eq!(shown, [1_700_000_000_123_000_000, 1_700_000_000_001_000_000, 0]);
    let monotonic = guest_of(VERSION, &count("(call $monotonic )"));
    assert_eq!(counted(&monotonic, 0, &[5, 3, 7]), [5_000_000, 5_000_000, 7_000_000]);
}

#[test]
fn time_stands_still_within_a_call_and_a_sleep_is_over_at_once() {
    // A hundred years, one after the other.
    let century = "(call $sleep (i64.const 3155760000000000000))";
    let poll = format!(
        "(i32.store (i32.const {DATA}) {century}) (i32.store (i32.const {second}) {century})
         (call $poll (i32.const {DATA}) (i32.const 2) (i32.const {answer}))
         (if (i32.ne (i32.load (i32.const {length})) (i32.const 2)) (then (unreachable)))",
        second = DATA + 4,
        answer = DATA + 16,
        length = DATA + 20,
    );
    let process = format!("(call $block {century}) {poll} {}", count("(call $monotonic )"));
    assert_eq!(counted(&guest_of(VERSION, &process), 0, &[9]), [9_000_000]);
    let nothing = format!("(call $poll (i32.const {DATA}) (i32.const 0) (i32.const {}))", DATA + 16);
    assert!(matches!(failure(&nothing), Failure::Misuse(Misuse::PolledNothing)));
}

#[test]
fn random_numbers_follow_from_job_operator_subtask_and_call() {
    let guest = guest_of(VERSION, &count("(i64.shr_u (call $random ) (i64.const 8))"));
    let numbers = counted(&guest, 0, &[1, 1, 2]);
    assert_eq!(numbers, counted(&guest, 0, &[1, 1, 2]), "the same again");
    let others = counted(&guest, 1, &[1, 1, 2]);
    let mut all = [numbers, others].concat();
    all.sort_unstable();
    all.dedup();
    assert_eq!(all.len(), 6, "and none twice: {all:?}");
    let seed = format!(
        "(call $seed (i32.const {DATA})) {}",
        count(&format!("(i64.shr_u (i64.load (i32.const {DATA})) (i64.const 8))"))
    );
    let seeds = counted(&guest_of(VERSION, &seed), 0, &[1, 2]);
    assert_eq!(seeds[0], seeds[1], "hash tables don't change from call to call");
}

#[test]
fn a_flood_of_random_bytes_is_refused() {
    let wanted = |bytes: u64| format!("(call $random_bytes (i64.const {bytes}) (i32.const {DATA}))");
    run(&guest_of(VERSION, &wanted(1 << 20))).expect("a megabyte");
    let failure = failure(&wanted(1 << 40));
    assert!(matches!(failure, Failure::Misuse(Misuse::RandomBytes { .. })), "{failure}");
}

#[test]
fn there_are_no_arguments_variables_folders_and_terminals_and_input_is_at_its_end() {
    for (call, word) in [
        ("(call $get_environment (i32.const DATA))", 4),
        ("(call $get_arguments (i32.const DATA))", 4),
        ("(call $preopens (i32.const DATA))", 4),
    ] {
        let process = format!("{} {} {}", dirty(), call.replace("DATA", &DATA.to_string()), expect(word, 0));
        run(&guest_of(VERSION, &process)).expect(call);
    }
    for call in ["(call $initial_cwd (i32.const DATA))", "(call $terminal (i32.const DATA))"] {
        let process = format!("{} {} {}", dirty(), call.replace("DATA", &DATA.to_string()), expect_ok());
        run(&guest_of(VERSION, &process)).expect(call);
    }
    // An error (1), of which kind: closed (1).
    let read = format!("(call $read (call $stdin ) (i64.const 100) (i32.const {DATA}))");
    let closed = format!(
        "(if (i32.or (i32.ne (i32.load8_u (i32.const {DATA})) (i32.const 1))
            (i32.ne (i32.load8_u (i32.const {})) (i32.const 1))) (then (unreachable)))",
        DATA + 4
    );
    run(&guest_of(VERSION, &format!("{read} {closed}"))).expect("at its end");
}

#[test]
fn sockets_and_names_are_denied() {
    // An error (1), of which kind: access-denied (1).
    let denied = format!(
        "(if (i32.or (i32.ne (i32.load8_u (i32.const {DATA})) (i32.const 1))
            (i32.ne (i32.load8_u (i32.const {})) (i32.const 1))) (then (unreachable)))",
        DATA + 4
    );
    let socket = format!("(call $socket (i32.const 0) (i32.const {DATA})) {denied}");
    run(&guest_of(VERSION, &socket)).expect("denied");
    let resolve =
        format!("(call $resolve (call $network ) (i32.const {TEXT}) (i32.const 0) (i32.const {DATA})) {denied}");
    run(&guest_of(VERSION, &format!("{resolve} {resolve}"))).expect("denied, twice");
}

#[test]
fn what_has_no_error_of_its_own_ends_the_call_and_is_named() {
    let failure = failure("(drop (call $open_store ))");
    assert_eq!(failure.to_string(), "it called open of wasi:keyvalue/store@0.2.3, and operators get nothing of that");
}

#[test]
fn a_panic_that_a_runtime_prints_is_told_with_what_it_printed() {
    let text = "thread panicked at src/lib.rs:7:\nno such word\n";
    let failure = failure(&format!("{} unreachable", print("stderr", text)));
    assert!(
        matches!(&failure, Failure::Panic { message } if message == "thread panicked at src/lib.rs:7:; no such word"),
        "{failure}"
    );
    let harmless = self::failure(&format!("{} unreachable", print("stdout", text)));
    assert!(matches!(harmless, Failure::Trap { .. }), "{harmless}");
}

#[test]
fn a_panic_whose_message_isn_t_utf_8_is_told_as_far_as_it_can_be_read() {
    let failure = failure(&format!("{} unreachable", print("stderr", b"no such word: \xff\xfe!\n")));
    assert!(
        matches!(&failure, Failure::Panic { message } if message == "no such word: \u{fffd}\u{fffd}!"),
        "{failure}"
    );
}

#[test]
fn exit_ends_the_call_with_what_was_said_last() {
    assert_eq!(failure("(call $exit (i32.const 0))").to_string(), "it called exit(0)");
    let said = failure(&format!("{} (call $exit (i32.const 1))", print("stderr", "Traceback:\nValueError: x")));
    assert_eq!(said.to_string(), "it called exit(1): Traceback:; ValueError: x");
}

#[test]
fn a_flood_of_handles_and_of_output_ends_in_an_error() {
    let failure = failure("(loop $more (drop (call $stdin )) (br $more))");
    assert!(matches!(&failure, Failure::Trap { trap } if trap.contains("handle limit")), "{failure}");
    let hold = |handles: usize| {
        format!(
            "(loop $more (drop (call $stdin )) (local.set $i (i32.add (local.get $i) (i32.const 1)))
             (br_if $more (i32.lt_u (local.get $i) (i32.const {handles}))))"
        )
    };
    run(&guest_of(VERSION, &hold(HANDLES_MAX / 2))).expect("so many it may hold");
    let failure = self::failure(&hold(HANDLES_MAX + 1));
    assert!(matches!(&failure, Failure::Trap { trap } if trap.contains("handle limit")), "{failure}");
    let long = format!("(call $print (call $stdout ) (i32.const 0) (i32.const {}) (i32.const {DATA}))", 64 * 1024 + 1);
    let failure = self::failure(&long);
    assert!(matches!(failure, Failure::Misuse(Misuse::WriteTooLong { .. })), "{failure}");
    // Twenty thousand lines of which a hundred pass.
    let process = format!(
        "{} (local.set $i (i32.const 0)) (loop $more {}
         (local.set $i (i32.add (local.get $i) (i32.const 1))) (br_if $more (i32.lt_u (local.get $i) (i32.const 20000))))",
        "(global.set $out (call $stdout ))",
        format_args!("(call $print (global.get $out) (i32.const {TEXT}) (i32.const 2) (i32.const {DATA}))"),
    );
    let mut guest = guest_of(VERSION, &process);
    guest.extra = format!("(global $out (mut i32) (i32.const 0)) (data (i32.const {TEXT}) \"x\\n\")");
    run(&guest).expect("it only talks");
}

#[test]
fn a_guest_may_ask_wasi_before_it_is_opened() {
    let mut guest = guest_of(VERSION, "(drop (call $random )) (drop (call $monotonic ))");
    guest.describe = guest.process.clone();
    let mut instance = open(&guest);
    instance.process(0, &batch(&["a"]), &mut Emitted::new()).expect("it processes");
    guest.describe = format!("{} (call $exit (i32.const 1))", log(3, "nothing to say"));
    guest.process = guest.describe.clone();
    guest.wasi = guest_of(VERSION, &guest.process).wasi;
    let Problem::Describe(error) = refusal(&guest.component()) else { panic!("it can't say what it is") };
    assert_eq!(error.call, Call::Describe);
    assert_eq!(error.failure.to_string(), "it called exit(1): nothing to say");
}

#[test]
fn wasi_of_another_shape_doesn_t_fit() {
    let mut guest =
        guest_of(VERSION, &format!("(i32.store (i32.const {RESULT}) (i32.const 0)) (call $exit (i32.const 1))"));
    guest.wasi.packages = guest.wasi.packages.replace("exit: func(status: result);", "exit: func(status: u32);");
    let problem = refusal(&guest.component());
    assert!(matches!(problem, Problem::Mismatch(_)), "{problem}");
}
