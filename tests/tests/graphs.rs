//! Graphs of several sources, inputs and outputs: every record goes where the job file says, and event time goes on as long as
//! anybody has something to say.

use std::fs;
use std::path::PathBuf;
use std::sync::LazyLock;

use lockgate_tests::{JobFolder, build_operator, part_files, repository};

fn shapes() -> PathBuf {
    static BUILT: LazyLock<PathBuf> = LazyLock::new(|| build_operator(&repository().join("tests/shapes"), "shapes"));
    BUILT.clone()
}

/// The committed lines of an output folder, sorted.
fn lines(folder: &JobFolder, output: &str) -> Vec<String> {
    let files = part_files(&folder.path(output)).expect("the output can be listed");
    let text = files.iter().map(|file| fs::read_to_string(file).expect("output is text")).collect::<String>();
    let mut lines = text.lines().map(str::to_owned).collect::<Vec<_>>();
    lines.sort_unstable();
    lines
}

const HEAD: &str = r#"[job]
name = "graph"
state_dir = "state"
[checkpoint]
interval = "20ms"
"#;

/// An operator with inputs `left`, `right` and `rules`, whose outputs are written to `out` and `side`.
fn shapes_job(sources: &str, parallelism: u32, config: &str) -> String {
    format!(
        r#"{HEAD}{sources}
[operator.shapes]
wasm = "{wasm}"
inputs = {{ right = "right", rules = "rules", left = "left" }}
parallelism = {parallelism}
[operator.shapes.config]
{config}
[sink.out]
type = "file"
path = "out"
input = "shapes"
[sink.side]
type = "file"
path = "side"
input = "shapes:side"
"#,
        wasm = shapes().display()
    )
}

/// A file source with the name of its folder.
fn file_source(name: &str) -> String {
    format!("[source.{name}]\ntype = \"file\"\npath = \"{name}\"\n")
}

#[test]
fn one_output_feeds_several_readers_and_several_feed_one() {
    let folder = JobFolder::new();
    let sink =
        |name: &str, inputs: &str| format!("[sink.{name}]\ntype = \"file\"\npath = \"{name}\"\ninputs = {inputs}\n");
    let sources = file_source("a") + &file_source("b");
    let sinks = [sink("first", r#"["a"]"#), sink("second", r#"["a"]"#), sink("both", r#"[["a", "b"]]"#)].concat();
    folder.write("job.toml", [HEAD, &sources, &sinks].concat());
    folder.write("a/lines", "a1\na2\na3\n");
    folder.write("b/lines", "b1\nb2\n");
    folder.run().assert_success();
    assert_eq!(lines(&folder, "first"), ["a1", "a2", "a3"]);
    assert_eq!(lines(&folder, "second"), ["a1", "a2", "a3"]);
    assert_eq!(lines(&folder, "both"), ["a1", "a2", "a3", "b1", "b2"]);
}

#[test]
fn an_operator_tells_its_inputs_apart_and_every_subtask_gets_all_of_a_broadcast() {
    for parallelism in [1, 3] {
        let folder = JobFolder::new();
        let sources = ["left", "right", "rules"].map(file_source).concat();
        folder.write("job.toml", shapes_job(&sources, parallelism, "side = \"7\""));
        folder.write("left/lines", "1\n7\n");
        folder.write("right/lines", "2\n7\n");
        folder.write("rules/lines", "x\ny\nz\n");
        folder.run().assert_success();
        let rules = vec!["rules x,y,z"; parallelism as usize];
        assert_eq!(lines(&folder, "out"), [vec!["left 1", "right 2"], rules].concat());
        assert_eq!(lines(&folder, "side"), ["left 7", "right 7"]);
    }
}

#[test]
fn what_was_broadcast_is_known_at_another_parallelism() {
    let folder = JobFolder::new();
    let sources = ["left", "right", "rules"].map(file_source).concat();
    ["left/lines", "right/lines"].iter().for_each(|lines| folder.write(lines, "1\n"));
    folder.write("rules/lines", "x\ny\n");
    let mut expected = vec!["left 1".to_owned(), "right 1".to_owned()];
    for (run, parallelism) in [2u32, 4, 1].into_iter().enumerate() {
        folder.write("job.toml", shapes_job(&sources, parallelism, ""));
        // Something must have come, or the run has nothing to do.
        folder.write(format!("rules/more-{run}"), format!("{run}\n"));
        folder.run().assert_success();
        let known = (0..=run).map(|run| run.to_string()).collect::<Vec<_>>().join(",");
        expected.extend((0..parallelism).map(|_| format!("rules {known},x,y")));
        expected.sort_unstable();
        assert_eq!(lines(&folder, "out"), expected, "at {parallelism}");
    }
}

fn generator(name: &str, options: &str) -> String {
    format!(
        "[source.{name}]\ntype = \"generator\"\nkind = \"sequence\"\nevent_time = \"id\"\n{options}\n\
         [source.{name}.watermark]\nstrategy = \"monotonous\"\n"
    )
}

#[test]
fn sources_of_very_different_speed_are_read_to_their_ends() {
    let folder = JobFolder::new();
    let sources = [
        generator("left", "count = 200000\nparallelism = 2"),
        generator("right", "count = 40\nrate = 100"),
        generator("rules", "count = 0"),
    ];
    folder.write("job.toml", shapes_job(&sources.concat(), 2, ""));
    folder.run().assert_success();
    let lines = lines(&folder, "out");
    let of = |input: &str| lines.iter().filter(|line| line.starts_with(input)).count();
    assert_eq!((of("left"), of("right"), of("rules")), (200_000, 40, 2));
}

/// The newest watermark that the operator has told.
fn newest_watermark(folder: &JobFolder) -> Option<i64> {
    let lines = lines(folder, "out");
    lines.iter().filter_map(|line| line.strip_prefix("watermark ")?.parse().ok()).max()
}

#[test]
fn a_silent_source_holds_event_time_back_only_until_it_is_idle_and_never_the_checkpoints() {
    let folder = JobFolder::new();
    let silent = |name: &str, idle_timeout: &str| {
        let source = file_source(name);
        let time = "event_time = { from = \"csv\", column = 0 }\nmode = \"continuous\"\ndiscover_interval = \"10ms\"\n";
        let watermark = format!("watermark = {{ strategy = \"monotonous\", idle_timeout = \"{idle_timeout}\" }}\n");
        [&source, time, &watermark].concat()
    };
    // It goes on for long enough to be there when the others have fallen idle.
    let left = generator("left", "count = 40000\nrate = 20000");
    let sources = [left, silent("right", "50ms"), silent("rules", "50ms")].concat();
    folder.write("job.toml", shapes_job(&sources, 1, "watermarks = true"));
    ["right", "rules"].iter().for_each(|name| folder.create_dir(name));
    let mut running = folder.start();
    // The generator has ended; that all it gave is committed says that barriers still come through.
    running.wait_until("event time has come to the end of the generator", || newest_watermark(&folder) == Some(39_998));
    folder.write("right/lines", "50000\n60000\n");
    running.wait_until("event time goes on with the other source", || newest_watermark(&folder) == Some(59_999));
    running.terminate();
    running.wait().assert_success();
    assert!(
        !lines(&folder, "out").iter().any(|line| line.starts_with("rules")),
        "the silent ones may still say something"
    );
}

#[test]
fn an_event_time_out_of_range_is_refused_with_source_split_and_offset() {
    let folder = JobFolder::new();
    let time = "event_time = { from = \"json\", field = \"/at\" }\n";
    let sink = "[sink.out]\ntype = \"file\"\npath = \"out\"\ninput = \"orders\"\n";
    folder.write("job.toml", [HEAD, "[restart]\nstrategy = \"none\"\n", &file_source("orders"), time, sink].concat());
    folder.write("orders/a.json", "{\"at\": 5}\n{\"at\": 9223372036854775807}\n");
    let finished = folder.run();
    finished.assert_refused(1, &["orders", "record 1 from offset 0 of split 'a.json'", "100,000,000 days", "unit"]);
    assert_eq!(lines(&folder, "out"), [""; 0]);
}
