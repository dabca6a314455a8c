//! Answers that are too large, aren't where they say, or are none.

use super::super::guest::{DATA, DESCRIPTOR, Guest, Migrating, RESULT, STATIC, store, store_words};
use super::super::migration::{self, SAME, TWICE, migration_error, old_state, own_keys};
use super::super::*;
use super::{assert_goes_on, failure, process_error_of, trap};
use crate::guest::{BadDescriptor, Call, Failure, MigrationError, Misuse, OperatorInstance};
use crate::id::Epoch;

/// The last byte of the memory of a guest with two pages.
const END: u32 = 2 * 65_536;
/// As many pages as the usual limit leaves room for, about: 240 MiB.
const MANY_PAGES: u32 = 3_840;

fn is_handed_over(failure: &Failure) -> bool {
    matches!(failure, Failure::Misuse(Misuse::HandedOver { .. }))
}

#[test]
fn a_snapshot_that_is_not_in_memory_is_refused() {
    for place in [[0, u32::MAX], [16, END], [END, 1], [u32::MAX, 1], [u32::MAX, u32::MAX], [1 << 31, 1 << 31]] {
        let guest = Guest { snapshot: store_words(RESULT + 4, &place), ..Guest::default() };
        let error = open(&guest).snapshot(Epoch(7)).expect_err("it isn't there");
        assert_eq!(error.call, Call::Snapshot { epoch: Epoch(7) });
        assert!(trap(*error.failure).contains("out of bounds"), "{place:?}");
    }
    assert_goes_on();
}

#[test]
fn rejections_that_are_not_in_memory_are_refused() {
    for (place, words) in
        [([DATA, 100_000_000], "out of bounds"), ([DATA, u32::MAX], "out of bounds"), ([DATA + 1, 1], "align")]
    {
        assert!(trap(failure(&store_words(RESULT + 4, &place))).contains(words), "{place:?}");
    }
}

#[test]
fn lists_of_millions_of_empty_elements_take_no_memory_of_the_host() {
    let process = store_words(RESULT + 4, &[DATA, 20_000_000]);
    let error = process_error_of(&Guest { pages: MANY_PAGES, process, ..Guest::default() }, Limits::default());
    assert!(is_handed_over(&error.failure), "{error}");
    let refused = |list: u32, count: u32| {
        let describe = store_words(DESCRIPTOR + list, &[END, count]);
        refusal(&Guest { pages: MANY_PAGES, describe, ..Guest::default() }.component())
    };
    let (inputs, outputs, tables) = (16, 24, 32);
    for (list, count) in [(inputs, 20_000_000), (outputs, 30_000_000), (tables, 15_000_000)] {
        let problem = refused(list, count);
        assert!(matches!(&problem, Problem::Describe(error) if is_handed_over(&error.failure)), "{problem}");
    }
    for (list, what) in [(inputs, "input"), (outputs, "output"), (tables, "table")] {
        let problem = refused(list, 1_000_000);
        let Problem::Descriptor(BadDescriptor::TooMany { what: refused, count: 1_000_000 }) = problem else {
            panic!("{problem}")
        };
        assert_eq!(refused, what);
    }
    assert_goes_on();
}

#[test]
fn long_names_that_lie_one_over_the_other_take_no_memory_of_the_host() {
    // A thousand outputs, all of them with the same megabyte as their name.
    let describe = format!(
        "(loop $next (i32.store (i32.add (i32.const {DATA}) (i32.mul (global.get $n) (i32.const 8))) (i32.const {END}))
         (i32.store (i32.add (i32.const {length}) (i32.mul (global.get $n) (i32.const 8))) (i32.const 1048576))
         (global.set $n (i32.add (global.get $n) (i32.const 1))) (br_if $next (i32.lt_u (global.get $n) (i32.const 1000))))
         {list}",
        length = DATA + 4,
        list = store_words(DESCRIPTOR + 24, &[DATA, 1000]),
    );
    let extra = "(global $n (mut i32) (i32.const 0))".to_owned();
    let problem = refusal(&Guest { pages: 32, describe, extra, ..Guest::default() }.component());
    assert!(matches!(&problem, Problem::Describe(error) if is_handed_over(&error.failure)), "{problem}");
}

#[test]
fn numbers_that_stand_for_nothing_are_refused() {
    let byte = |at: u32, number: u8| store(at, [number]);
    assert!(trap(failure(&byte(RESULT, 7))).contains("discriminant"));
    let error = byte(RESULT, 1);
    assert!(
        trap(failure(&format!("{error} {}", byte(RESULT + 4, 9)))).contains("discriminant"),
        "the kind of an error"
    );
    assert!(
        trap(failure(&format!("{error} {}", byte(RESULT + 8, 9)))).contains("discriminant"),
        "whether there is a row"
    );
    assert!(trap(failure("(call $log (i32.const 9) (i32.const 0) (i32.const 0))")).contains("discriminant"));
    let described = |guest: Guest| match refusal(&guest.component()) {
        Problem::Describe(error) => trap(*error.failure),
        other => panic!("{other}"),
    };
    assert!(described(Guest { tables: vec![("counts", 9, 1)], ..Guest::default() }).contains("discriminant"));
    assert!(described(Guest { redistribution: 9, ..Guest::default() }).contains("discriminant"));
}

#[test]
fn an_answer_that_lies_nowhere_is_refused() {
    for pointer in ["-4", "17", "131072", "131068"] {
        let words = trap(failure(&format!("(return (i32.const {pointer}))")));
        assert!(words.contains("pointer"), "{pointer}: {words}");
    }
}

#[test]
fn a_descriptor_that_lies_nowhere_is_refused() {
    for (field, place) in [(0, [END, 1]), (8, [0, u32::MAX]), (16, [DATA + 2, 1]), (32, [END - 4, 1])] {
        let describe = store_words(DESCRIPTOR + field, &place);
        match refusal(&Guest { describe, ..Guest::default() }.component()) {
            Problem::Describe(error) => drop(trap(*error.failure)),
            other => panic!("{other}"),
        }
    }
    // A name that is there, and none.
    let describe = store_words(DESCRIPTOR, &[STATIC as u32, 0]);
    let problem = refusal(&Guest { describe, ..Guest::default() }.component());
    assert!(matches!(problem, Problem::Descriptor(BadDescriptor::Text { what: "name", .. })), "{problem}");
}

#[test]
fn a_migration_that_gives_what_isn_t_there_is_refused() {
    let out = |field: u32| format!("{SAME} {}", store_words(Migrating::ANSWER + 4 + field, &[END, 1]));
    for field in [0, 8, 16, 24, 32, 40] {
        let error = migration::refusal_of(&migration::guest(String::new(), &out(field)));
        assert!(matches!(error.call, Call::Migrate { .. }), "{error}");
        assert!(trap(*error.failure).contains("out of bounds"), "{field}");
    }
    let prepare = store(RESULT + 4, [9]);
    let error = migration::refusal_of(&migration::guest(prepare, SAME));
    assert!(matches!(error.call, Call::Prepare { .. }), "{error}");
    assert!(trap(*error.failure).contains("discriminant"));
    // Two entries have become one, and there is no value for it.
    let error = migrated_within(&migration::guest(String::new(), TWICE), Limits::default());
    assert!(matches!(error.call, Call::Merge { rows: 1, .. }), "{error}");
    assert!(matches!(migration_error(error), MigrationError::Malformed { what: "merged values", .. }));
}

/// What the migration of one entry ends with.
fn migrated_within(guest: &Guest, limits: Limits) -> OperatorError {
    let plugin = load_bytes(&guest.component()).expect("it loads");
    let (_folder, state) = old_state(&own_keys(1), false);
    let opened = plugin.instantiate(InstanceContext { state: Some(state), ..context(limits) });
    opened.map(drop).expect_err("it fails")
}

#[test]
fn empty_entries_that_a_migration_gives_count_as_output() {
    let rows = 100_000u32;
    let none = [END, (rows + 1) * 4];
    let answer = |field: u32| store_words(Migrating::ANSWER + 4 + field, &none);
    let guest = Guest { pages: 10, ..migration::guest(String::new(), &format!("{} {}", answer(8), answer(40))) };
    let error = migrated_within(&guest, Limits { output_bytes_max: 1 << 20, ..Limits::default() });
    assert!(matches!(*error.failure, Failure::Output { limit_bytes: 1_048_576 }), "{error}");
}
