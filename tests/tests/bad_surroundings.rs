//! What a machine can do to a job from outside: a full disk, unreadable input, a second host, another job's folder.

use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use lockgate_tests::{JobFolder, Running, WordCount, lockgate, part_files, skipped};

/// The exit code of a job that failed.
const FAILED: i32 = 1;
/// The exit code of a job that was refused before anything was done.
const UNUSABLE: i32 = 2;
/// The user that owns nothing.
const NOBODY: u32 = 65_534;

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// A file system of a fixed size, gone with its value.
struct SmallDisk(PathBuf);

impl SmallDisk {
    fn mount(at: PathBuf, size: &str) -> SmallDisk {
        mount(&["-t", "tmpfs", "-o", &format!("size={size}"), "tmpfs"], &at);
        SmallDisk(at)
    }

    fn grow(&self, size: &str) {
        mount(&["-o", &format!("remount,size={size}")], &self.0);
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        // If it stays mounted, removing the folder reports it.
        let _ = Command::new("umount").arg(&self.0).status();
    }
}

fn mount(arguments: &[&str], at: &Path) {
    let status = Command::new("mount").args(arguments).arg(at).status().expect("mount starts");
    assert!(status.success(), "mount {arguments:?}");
}

/// A job whose folder `name` is on a disk that is too small; with a larger one it must finish.
fn assert_survives_full_disk(name: &str) {
    if !is_root() {
        return skipped("the full disk", "only root may mount a small one");
    }
    let job = WordCount::new();
    job.add_text("a.txt", 1, 4_000_000);
    job.folder.create_dir(name);
    let disk = SmallDisk::mount(job.folder.path(name), "600k");
    job.folder.run().assert_refused(FAILED, &["No space left on device"]);
    disk.grow("200m");
    job.folder.run().assert_success();
    job.assert_exact();
}

#[test]
fn a_full_disk_under_the_state_stops_the_job_and_loses_nothing() {
    assert_survives_full_disk("state");
}

#[test]
fn a_full_disk_under_the_output_stops_the_job_and_loses_nothing() {
    assert_survives_full_disk("output");
}

#[test]
fn a_disk_that_has_room_again_is_taken_up_by_the_same_run() {
    if !is_root() {
        return skipped("the full disk", "only root may mount a small one");
    }
    let job = WordCount::new().restart("strategy = \"fixed-delay\"\nattempts = 100000\ndelay = \"20ms\"");
    job.add_text("a.txt", 1, 4_000_000);
    job.folder.create_dir("output");
    let disk = SmallDisk::mount(job.output(), "600k");
    let mut running = job.folder.start();
    running.wait_for_message("restart 2 of");
    disk.grow("200m");
    running.wait().assert_success();
    job.assert_exact();
}

#[test]
fn an_unreadable_input_file_stops_the_job_and_loses_nothing() {
    let job = WordCount::new();
    job.add_text("a.txt", 1, 100_000).add_text("b.txt", 2, 100_000);
    let closed = job.input().join("b.txt");
    fs::set_permissions(&closed, fs::Permissions::from_mode(0o000)).expect("the file is ours");
    run_without_privileges(&job.folder).assert_refused(UNUSABLE, &["b.txt", "ermission denied"]);
    fs::set_permissions(&closed, fs::Permissions::from_mode(0o644)).expect("the file is ours");
    run_without_privileges(&job.folder).assert_success();
    job.assert_exact();
}

/// Runs the job as a user that file permissions apply to.
fn run_without_privileges(folder: &JobFolder) -> lockgate_tests::Finished {
    if !is_root() {
        return folder.run();
    }
    // The binary and the operators may be below a home that others can't enter.
    let program = folder.path("lockgate");
    fs::copy(lockgate(), &program).expect("the folder is writable");
    let mut job = fs::read_to_string(folder.path("job.toml")).expect("it was written");
    for name in ["split", "count"] {
        let copy = folder.path(format!("{name}.wasm"));
        fs::copy(lockgate_tests::operator(name), &copy).expect("the folder is writable");
        job = job.replace(&lockgate_tests::operator(name).display().to_string(), &copy.display().to_string());
    }
    folder.write("job.toml", job);
    give_away(&folder.path(""));
    let mut command = Command::new(&program);
    command.arg("run").arg(folder.path("job.toml")).current_dir(folder.path(""));
    command.env("HOME", folder.path("home")).env_remove("XDG_CACHE_HOME").uid(NOBODY).gid(NOBODY);
    Running::start(command).wait()
}

fn give_away(path: &Path) {
    chown(path, Some(NOBODY), Some(NOBODY)).expect("root may give files away");
    if path.is_dir() {
        for entry in fs::read_dir(path).expect("it can be listed") {
            give_away(&entry.expect("it can be listed").path());
        }
    }
}

#[test]
fn a_second_host_on_the_same_job_is_refused_and_the_first_goes_on() {
    let job = WordCount::new().continuous();
    job.add_text("a.txt", 1, 100_000);
    let mut first = job.folder.start();
    first.wait_until("the first committed output", || part_files(&job.output()).is_ok_and(|files| !files.is_empty()));
    job.folder.run().assert_refused(FAILED, &["word-count", "state"]);
    job.add_text("b.txt", 2, 100_000);
    first.wait_until("exact output of both files", || job.totals().check(&job.output()).is_ok());
    first.terminate();
    first.wait().assert_success();
    job.assert_exact();
}

#[test]
fn an_output_folder_of_another_job_is_refused_and_left_alone() {
    let owner = WordCount::new();
    owner.add_text("a.txt", 1, 100_000);
    owner.folder.run().assert_success();
    let intruder = WordCount::new();
    intruder.add_text("b.txt", 2, 100_000);
    let output = owner.output().display().to_string();
    let broken = intruder.job_file().replace("path = \"output\"", &format!("path = \"{output}\""));
    intruder.folder.write("job.toml", broken);
    intruder.folder.run().assert_refused(UNUSABLE, &[&output]);
    owner.assert_exact();
    intruder.folder.write("job.toml", intruder.job_file());
    intruder.folder.run().assert_success();
    intruder.assert_exact();
    owner.folder.run().assert_success();
    owner.assert_exact();
}

#[test]
fn a_line_over_the_limit_stops_the_job_with_its_place() {
    let job = WordCount::new();
    job.folder.write("job.toml", job.job_file().replace("mode =", "max_line = \"1KiB\"\nmode ="));
    job.folder.write("input/long.txt", [b"short\n".as_slice(), &[b'x'; 2_000], b"\n"].concat());
    job.folder.run().assert_refused(FAILED, &["long.txt", "max_line"]);
    job.folder.write("job.toml", job.job_file());
    job.folder.run().assert_success();
    job.assert_exact();
}

#[test]
fn an_output_folder_within_the_input_is_refused_before_anything_is_written() {
    let job = WordCount::new();
    job.folder.write("input/a.txt", "one line\n");
    let broken = job.job_file().replace("path = \"output\"", "path = \"input/out\"");
    job.folder.write("job.toml", broken);
    let finished = job.folder.run();
    assert_eq!(finished.status.code(), Some(2), "{}", finished.stderr);
    assert!(finished.stderr.contains("sink.out") && finished.stderr.contains("help: "), "{}", finished.stderr);
    assert!(!job.folder.path("input/out").exists() && !job.folder.path("state").exists());
}

#[test]
fn a_pattern_that_would_read_what_the_job_writes_is_refused() {
    let patterns = [
        ("input/*.txt", "input", "state"),
        ("input/**/*.txt", "input/a/b", "state"),
        ("*/**", "/elsewhere", "here/state"),
    ];
    for (pattern, output, state) in patterns {
        let job = WordCount::new();
        job.folder.write("input/a.txt", "one line\n");
        let broken = job.job_file().replace("path = \"input\"", &format!("path = \"{pattern}\""));
        let broken = broken.replace("path = \"output\"", &format!("path = \"{output}\""));
        job.folder.write("job.toml", broken.replace("state_dir = \"state\"", &format!("state_dir = \"{state}\"")));
        job.folder.run().assert_refused(2, &["which source 'text' reads", "folders apart"]);
    }
}

#[test]
fn a_checkpoint_older_than_the_committed_output_is_refused() {
    let job = WordCount::new();
    job.folder.write("input/a.txt", "one\n");
    assert!(job.folder.run().status.success());
    job.folder.write("input/b.txt", "two\n");
    assert!(job.folder.run().status.success());
    let manifests = job.folder.path("state/checkpoints/word-count/0/manifests");
    let mut files =
        fs::read_dir(&manifests).expect("manifests").map(|file| file.expect("a file").path()).collect::<Vec<_>>();
    files.sort();
    let newest = files.pop().expect("two checkpoints");
    let kept = fs::read(&newest).expect("readable");
    fs::remove_file(&newest).expect("removable");
    for (verb, code) in [("check", UNUSABLE), ("run", FAILED)] {
        let refused = Running::start(job.folder.command(verb)).wait();
        refused.assert_refused(code, &["sink 'out'", "a manifest is missing"]);
    }
    fs::write(&newest, kept).expect("put back");
    assert!(job.folder.run().status.success());
    job.totals().check(&job.output()).expect("nothing is lost or doubled");
}

#[test]
fn an_input_that_is_not_there_is_refused_by_both_verbs_before_anything_is_written() {
    let job = WordCount::new();
    job.folder.write("job.toml", job.job_file().replace("path = \"input\"", "path = \"inptu\""));
    for verb in ["check", "run"] {
        let refused = Running::start(job.folder.command(verb)).wait();
        refused.assert_refused(UNUSABLE, &["inptu", "there is no such file or folder", "path of [source.text]"]);
    }
    assert!(!job.output().exists() && !job.folder.path("state").exists());
}

#[test]
fn an_input_file_that_was_read_to_its_end_may_be_gone() {
    let job = WordCount::new();
    job.folder.write("job.toml", job.job_file().replace("path = \"input\"", "path = \"input/only.txt\""));
    job.folder.write("input/only.txt", "one two two\n");
    job.folder.run().assert_success();
    fs::remove_file(job.input().join("only.txt")).expect("the input is ours");
    for verb in ["check", "run"] {
        Running::start(job.folder.command(verb)).wait().assert_success();
    }
}

#[test]
fn an_output_path_that_changed_is_told_with_the_old_one_and_moving_the_folder_is_enough() {
    let job = WordCount::new();
    job.add_text("a.txt", 1, 100_000);
    job.folder.run().assert_success();
    let (old, new) = (job.output().display().to_string(), job.folder.path("elsewhere").display().to_string());
    job.folder.write("job.toml", job.job_file().replace("path = \"output\"", "path = \"elsewhere\""));
    for (verb, code) in [("run", FAILED), ("check", UNUSABLE), ("run", FAILED)] {
        let refused = Running::start(job.folder.command(verb)).wait();
        refused.assert_refused(code, &["sink 'out'", &old, &new, &format!("set path back to {old}")]);
        assert!(!job.folder.path("elsewhere").exists(), "a refused job makes no folder");
    }
    fs::rename(&old, &new).expect("the folder is ours");
    job.add_text("b.txt", 2, 100_000);
    job.folder.run().assert_success();
    job.totals().check(&job.folder.path("elsewhere")).expect("nothing is lost or doubled");
}

#[test]
fn a_pipe_among_the_input_is_passed_over_with_one_warning() {
    let job = WordCount::new().continuous();
    job.folder.write("job.toml", job.job_file().replace("mode =", "discover_interval = \"1ms\"\nmode ="));
    job.add_text("a.txt", 1, 20_000);
    let made = Command::new("mkfifo").arg(job.input().join("pipe")).status().expect("mkfifo starts");
    assert!(made.success());
    let mut running = job.folder.start();
    running.wait_until("the first file", || {
        job.output().exists() && part_files(&job.output()).is_ok_and(|files| !files.is_empty())
    });
    job.folder.write("input/b.txt", "another\n");
    running.wait_until("the second file", || {
        let read = |file: &PathBuf| fs::read_to_string(file).expect("output is text");
        part_files(&job.output()).is_ok_and(|files| files.iter().any(|file| read(file).contains("another")))
    });
    running.terminate();
    let finished = running.wait();
    finished.assert_success();
    let warnings = finished.stderr.lines().filter(|line| line.contains("WARN") && line.contains("input/pipe")).count();
    assert_eq!(warnings, 1, "{}", finished.stderr);
}

#[test]
fn a_key_that_is_too_long_is_told_as_the_records_and_not_the_operators_fault() {
    let job = WordCount::new();
    job.folder.write("job.toml", job.job_file().replace("mode =", "max_line = \"4MiB\"\nmode ="));
    let word = format!("longest{}", "x".repeat(1 << 20));
    job.folder.write("input/a.txt", format!("short\n{word}\nshort\n"));
    let refused = job.folder.run();
    refused.assert_refused(FAILED, &["count", "at most 1048576", "begins with 'longestxxx", "a shorter key"]);
    assert!(!refused.stderr.contains("the operator's fault"), "{}", refused.stderr);
    job.folder.write("input/a.txt", "short\nshort\n");
    job.folder.run().assert_success();
    job.assert_exact();
}
