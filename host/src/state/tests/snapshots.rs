//! What a snapshot holds and what it costs.

use super::*;
use crate::id::Epoch;
use crate::state::snapshot::PendingSnapshot;

fn entries(numbers: impl Iterator<Item = u64>, version: u64, length: usize) -> Vec<(Vec<u8>, Vec<u8>)> {
    numbers.map(|n| (format!("key-{n}").into_bytes(), noise(n * 1000 + version, length))).collect()
}

fn freeze(state: &mut KeyedState, epoch: u64) -> PendingSnapshot {
    state.freeze(Epoch(epoch)).expect("a working disk")
}

/// One percent of the keys is touched in each epoch. Gives the bytes of the first snapshot and of each later one, and the last.
fn bytes_of_one_percent(memory_bytes_max: usize, keys: u64, epochs: u64) -> (u64, Vec<u64>, KeyedSnapshot) {
    let world = World::new();
    let upload = world.uploader("1-0");
    let mut state = world.open(memory_bytes_max, &[]);
    for chunk in 0..keys / 1000 {
        write(&mut state, entries(chunk * 1000..(chunk + 1) * 1000, 0, 100));
    }
    let mut last = upload.finish(freeze(&mut state, 1));
    let first = upload.take_bytes();
    assert!(first > keys * 100, "all of the state is brought first");
    let later = (2..epochs + 2).map(|epoch| {
        let touched = (0..keys / 100).map(|i| xxh3_64(&[epoch, i].map(u64::to_le_bytes).concat()) % keys);
        write(&mut state, entries(touched, epoch, 100));
        last = upload.finish(freeze(&mut state, epoch));
        upload.take_bytes()
    });
    let later = later.collect();
    drop(state);
    let restored = world.open(memory_bytes_max, std::slice::from_ref(&last));
    assert!((0..keys).all(|n| read(&restored, format!("key-{n}").as_bytes()).is_some()));
    (first, later, last)
}

#[test]
fn after_a_large_snapshot_one_percent_of_the_keys_costs_little_whether_it_fits_into_memory_or_not() {
    for memory_bytes_max in [256 * MIB, MIB] {
        let (first, later, _) = bytes_of_one_percent(memory_bytes_max, 50_000, 4);
        for bytes in later {
            assert!(bytes * 20 <= first, "{bytes} of {first} bytes with {memory_bytes_max} bytes of memory");
        }
    }
}

#[test]
fn bases_included_one_percent_of_the_keys_costs_at_most_five_percent() {
    let (first, later, last) = bytes_of_one_percent(4 * MIB, 50_000, 70);
    let all: u64 = later.iter().sum();
    assert!(last.deltas.len() < 70, "a second base took the place of deltas");
    assert!(all / later.len() as u64 * 20 <= first, "{all} bytes in {} epochs, {first} at first", later.len());
}

#[test]
fn what_is_written_after_the_barrier_is_not_in_the_snapshot_however_late_it_is_uploaded() {
    // With 64 KiB of memory, 300 entries of 200 bytes fill it: the first round of each is a delta or a base.
    for first_entries in [10, 2000] {
        let world = World::new();
        let upload = world.uploader("1-0");
        let mut state = world.open(64 << 10, &[]);
        let write_round = |state: &mut KeyedState, count, version| {
            for chunk in entries(0..count, version, 200).chunks(100) {
                write(state, chunk.to_vec());
            }
        };
        write_round(&mut state, first_entries, 1);
        let early = freeze(&mut state, 1);
        write_round(&mut state, 2000, 2);
        let later = freeze(&mut state, 2);
        write_round(&mut state, 2000, 3);
        assert!(state.metrics().disk_bytes > 0, "a flush ran");
        let (later, early) = (upload.finish(later), upload.finish(early));
        write_round(&mut state, 2000, 4);

        for (snapshot, version, count) in [(early, 1, first_entries), (later, 2, 2000)] {
            let restored = world.open(MIB, &[snapshot]);
            for (key, value) in entries(0..2000, version, 200).into_iter().take(count as usize) {
                assert_eq!(read(&restored, &key), Some(value));
            }
            assert_eq!(read(&restored, format!("key-{}", count + 1).as_bytes()), None);
        }
    }
}

#[test]
fn a_snapshot_without_anything_new_brings_no_file() {
    let world = World::new();
    let upload = world.uploader("1-0");
    let mut state = world.open(MIB, &[]);
    let empty = upload.finish(freeze(&mut state, 1));
    assert!(empty.base.is_empty() && empty.deltas.is_empty());
    write(&mut state, [("k", "v")]);
    let first = upload.finish(freeze(&mut state, 2));
    assert_eq!(upload.take_puts().iter().map(|put| &put.0[..]).collect::<Vec<_>>(), ["delta-2-1"]);
    let second = upload.finish(freeze(&mut state, 3));
    assert_eq!((first, upload.take_puts()), (second, vec![]));
}

#[test]
fn a_snapshot_that_was_lost_is_made_up_for_by_the_next_one() {
    let world = World::new();
    let upload = world.uploader("1-0");
    let mut state = world.open(MIB, &[]);
    write(&mut state, [("dropped", "1")]);
    drop(freeze(&mut state, 1));
    write(&mut state, [("failed", "2")]);
    let down = Upload { fails: true, ..world.uploader("1-0") };
    let error = down.try_finish(freeze(&mut state, 2)).expect_err("the store is down");
    assert!(matches!(&error, StateError::Upload { name, .. } if name == "delta-1-1"), "{error}");
    write(&mut state, [("third", "3")]);
    let snapshot = upload.finish(freeze(&mut state, 3));
    assert_eq!(snapshot.deltas.len(), 3);
    let restored = world.open(MIB, &[snapshot]);
    for (key, value) in [("dropped", "1"), ("failed", "2"), ("third", "3")] {
        assert_eq!(read(&restored, key.as_bytes()), Some(value.into()));
    }
}

#[test]
fn a_new_base_takes_the_place_of_the_deltas_that_it_contains() {
    let world = World::new();
    let upload = world.uploader("1-0");
    let mut state = world.open(MIB, &[]);
    let mut longest = 0;
    for epoch in 1..=200 {
        write(&mut state, [(format!("key-{epoch}"), format!("{epoch}"))]);
        let snapshot = upload.finish(freeze(&mut state, epoch));
        longest = longest.max(snapshot.deltas.len());
        if epoch % 50 == 0 {
            let restored = world.open(MIB, &[snapshot]);
            for n in 1..=epoch {
                assert_eq!(read(&restored, format!("key-{n}").as_bytes()), Some(n.to_string().into()));
            }
        }
    }
    assert!((33..=66).contains(&longest), "at most {longest} deltas");
    assert!(upload.take_puts().iter().any(|(name, _)| name.ends_with(".sst")));
}

#[test]
fn deltas_of_the_same_keys_become_one_without_a_database() {
    let world = World::new();
    let upload = world.uploader("1-0");
    let mut state = world.open(MIB, &[]);
    let hot = |version| entries(0..100, version, 50);
    let mut epoch = 0;
    let mut run = |state: &mut KeyedState, upload: &Upload<'_>, epochs| {
        let mut last = None;
        for _ in 0..epochs {
            epoch += 1;
            write(state, hot(epoch));
            last = Some(upload.finish(freeze(state, epoch)));
        }
        last.expect("some epochs")
    };
    run(&mut state, &upload, 6);
    while state.metrics().segments > 1 {
        std::thread::yield_now();
    }
    upload.take_puts();
    let snapshot = run(&mut state, &upload, 1);
    let names = upload.take_puts().into_iter().map(|(name, _)| name).collect::<Vec<_>>();
    assert_eq!(names, ["delta-6-1-6", "delta-7-7"]);
    assert_eq!(snapshot.deltas.len(), 2);
    drop(state);

    // What is restored is merged with what comes, and takes the place of the restored deltas.
    let upload = world.uploader("2-0");
    let mut state = world.open(MIB, &[snapshot]);
    run(&mut state, &upload, 5);
    while state.metrics().segments > 1 {
        std::thread::yield_now();
    }
    let snapshot = run(&mut state, &upload, 1);
    let paths = snapshot.deltas.iter().map(|file| &file.path[..]).collect::<Vec<_>>();
    assert_eq!(paths, ["2-0-delta-12-1-7", "2-0-delta-13-8"]);
    assert_eq!(state.metrics().disk_bytes, 0);
    let restored = world.open(MIB, &[snapshot]);
    assert!(hot(13).into_iter().all(|(key, value)| read(&restored, &key) == Some(value)));
}

#[test]
fn files_of_a_restored_base_are_not_brought_again() {
    let world = World::new();
    let upload = world.uploader("1-0");
    let mut state = world.open(256 << 10, &[]);
    // Few enough files for RocksDB not to compact them.
    for version in 0..2 {
        write(&mut state, entries(0..1000, version, 100));
    }
    let snapshot = upload.finish(freeze(&mut state, 1));
    assert!(snapshot.base.len() > 2, "a base of {:?}", snapshot.base.keys());
    drop(state);

    let upload = world.uploader("2-0");
    let mut state = world.open(256 << 10, std::slice::from_ref(&snapshot));
    let same = upload.finish(freeze(&mut state, 2));
    assert_eq!((same, upload.take_puts()), (snapshot.clone(), vec![]));
    write(&mut state, [("k", "v")]);
    state.chain.set_uncovered();
    let next = upload.finish(freeze(&mut state, 3));
    let brought = upload.take_puts();
    let ssts: Vec<_> = brought.iter().filter(|(name, _)| name.ends_with(".sst")).collect();
    assert!(ssts.iter().all(|(_, bytes)| *bytes < 10_000), "{brought:?}");
    assert!(snapshot.base.values().any(|file| next.base.values().any(|other| other == file)));
    let restored = world.open(MIB, &[next]);
    assert_eq!(read(&restored, b"k"), Some(b"v".into()));
    assert_eq!(read(&restored, b"key-999"), Some(noise(999 * 1000 + 1, 100)));
}

#[test]
fn the_last_snapshot_is_finished_although_the_state_is_dropped() {
    let world = World::new();
    let upload = world.uploader("1-0");
    let mut state = world.open(64 << 10, &[]);
    for chunk in entries(0..2000, 1, 200).chunks(100) {
        write(&mut state, chunk.to_vec());
    }
    let pending = freeze(&mut state, 1);
    drop(state);
    let restored = world.open(MIB, &[upload.finish(pending)]);
    assert_eq!(read(&restored, b"key-1999"), Some(noise(1_999_001, 200)));
}

#[test]
fn each_of_two_subtasks_takes_up_only_its_own_half() {
    // From a delta, and from a base.
    for (memory_bytes_max, memory_entries) in [(4 * MIB, 2000), (64 << 10, 0)] {
        let world = World::new();
        let mut state = world.open(memory_bytes_max, &[]);
        for chunk in entries(0..2000, 1, 100).chunks(100) {
            write(&mut state, chunk.to_vec());
        }
        let snapshot = world.uploader("1-0").finish(freeze(&mut state, 1));
        let all = std::slice::from_ref(&snapshot);
        let halves = [0, 1].map(|index| world.open_with(world.options(index, 2, memory_bytes_max), all));
        let [left, right] = halves.map(|half| half.expect("a good snapshot").metrics());
        assert_eq!(left.memory_entries + right.memory_entries, memory_entries);
        let (disk_bytes, whole) = (left.disk_bytes + right.disk_bytes, state.metrics().disk_bytes);
        assert!(disk_bytes <= whole * 5 / 4, "{disk_bytes} of {whole} bytes");
        assert_eq!(disk_bytes == 0, memory_entries > 0);
    }
}
