//! Damaged state stops the job with one error and loses nothing: with the damage repaired, it ends with exact output.

use std::fs;
use std::path::{Path, PathBuf};

use lockgate_tests::WordCount;

/// The exit code of a job that failed.
const FAILED: i32 = 1;
/// How many places of a file are damaged, besides its first and last bytes.
const PLACES: usize = 12;

/// A job that has finished its first file and has a second one to do.
fn job_with_state() -> WordCount {
    let job = WordCount::new();
    job.add_text("a.txt", 1, 200_000);
    job.folder.run().assert_success();
    job.add_text("b.txt", 2, 200_000);
    job
}

/// All files below the folder, sorted.
fn files_below(folder: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder).unwrap_or_else(|error| panic!("cannot list {}: {error}", folder.display())) {
        let path = entry.expect("a folder can be listed").path();
        if path.is_dir() { files.extend(files_below(&path)) } else { files.push(path) }
    }
    files.sort();
    files
}

fn store(job: &WordCount) -> PathBuf {
    job.folder.path("state/checkpoints/word-count")
}

fn newest_manifest(job: &WordCount) -> PathBuf {
    let manifests = files_below(&store(job).join("0/manifests"));
    manifests.last().expect("the job has published a checkpoint").clone()
}

/// The files of state that the newest manifest names.
fn state_files(job: &WordCount) -> Vec<PathBuf> {
    let manifest = fs::read_to_string(newest_manifest(job)).expect("a manifest is text");
    let is_named = |path: &PathBuf| manifest.contains(path.file_name().expect("a file").to_str().expect("ASCII names"));
    let files = files_below(&store(job).join("0/files")).into_iter().filter(is_named).collect::<Vec<_>>();
    assert!(!files.is_empty(), "a word count has keyed state");
    files
}

/// The first and last few places of `length`, and some in between.
fn places(length: usize) -> Vec<usize> {
    assert!(length > 0, "an empty file can't be damaged");
    let mut places = (0..PLACES).map(|place| length * place / PLACES).collect::<Vec<_>>();
    places.extend([1.min(length - 1), length.saturating_sub(2), length - 1]);
    places.sort();
    places.dedup();
    places
}

/// Runs the job with each kind of damage to the file, expects an error that names it, and repairs it.
fn assert_damage_is_found(job: &WordCount, file: &Path) {
    let whole = fs::read(file).expect("a file of the store can be read");
    let name = file.file_name().expect("a file").to_str().expect("ASCII names");
    for place in places(whole.len()) {
        let mut flipped = whole.clone();
        flipped[place] ^= 1;
        for (damage, bytes) in [("a flipped bit", &flipped[..]), ("the end", &whole[..place])] {
            fs::write(file, bytes).expect("the store is writable");
            println!("{damage} at byte {place} of {}", file.display());
            job.folder.run().assert_refused(FAILED, &[name]);
        }
    }
    fs::remove_file(file).expect("the store is writable");
    println!("{} removed", file.display());
    job.folder.run().assert_refused(FAILED, &[name]);
    fs::write(file, whole).expect("the store is writable");
}

#[test]
fn a_damaged_state_file_is_refused_and_its_repair_loses_nothing() {
    let job = job_with_state();
    for file in state_files(&job) {
        assert_damage_is_found(&job, &file);
    }
    job.folder.run().assert_success();
    job.assert_exact();
}

#[test]
fn a_damaged_manifest_is_refused_and_its_repair_loses_nothing() {
    let job = job_with_state();
    let file = newest_manifest(&job);
    let whole = fs::read(&file).expect("a manifest can be read");
    let name = file.file_name().expect("a file").to_str().expect("ASCII names");
    for place in places(whole.len()) {
        let mut flipped = whole.clone();
        flipped[place] ^= 1;
        for (damage, bytes) in [("a flipped bit", &flipped[..]), ("the end", &whole[..place])] {
            fs::write(&file, bytes).expect("the store is writable");
            println!("{damage} at byte {place} of {}", file.display());
            job.folder.run().assert_refused(FAILED, &[name]);
        }
    }
    fs::write(&file, whole).expect("the store is writable");
    job.folder.run().assert_success();
    job.assert_exact();
}

#[test]
fn a_damaged_job_identity_is_refused_and_its_repair_loses_nothing() {
    let job = job_with_state();
    let file = store(&job).join("job.json");
    let whole = fs::read(&file).expect("the identity can be read");
    fs::write(&file, &whole[1..]).expect("the store is writable");
    job.folder.run().assert_refused(FAILED, &["job.json", "from a backup", "start the job afresh"]);
    fs::write(&file, whole).expect("the store is writable");
    assert_damage_is_found(&job, &file);
    job.folder.run().assert_success();
    job.assert_exact();
}

#[test]
fn an_attempt_is_claimed_before_the_newest_manifest_is_looked_for() {
    let job = job_with_state();
    let file = newest_manifest(&job);
    let whole = fs::read(&file).expect("a manifest can be read");
    fs::write(&file, b"damaged").expect("the store is writable");
    // Otherwise a run that is still publishing could do so after the look and before the claim.
    assert!(job.folder.run_to_crash_point("store.claim.after").was_killed(), "the manifest was looked for first");
    fs::write(&file, whole).expect("the store is writable");
    job.folder.run().assert_success();
    job.assert_exact();
}
