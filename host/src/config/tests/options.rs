//! What a job file says of checkpoints, restarts, event time and named inputs.

use super::*;
use crate::connector::{EventTimeOptions, OnMissing, TimeFrom, TimeUnit};
use crate::protocol::restart::{Backoff, RestartBudget, RestartStrategy};
use crate::protocol::{AlignmentOptions, OnError, WatermarkOptions, WatermarkStrategy};

const SECOND: Duration = Duration::from_secs(1);

/// The word count with lines added in front of its source.
fn with(lines: &str) -> Result<JobFile, ConfigError> {
    parse(&WORD_COUNT.replacen("[source.text]", &format!("{lines}\n[source.text]"), 1))
}

/// The word count with lines added to its source.
fn with_source(lines: &str) -> Result<JobFile, ConfigError> {
    parse(&WORD_COUNT.replacen("path = \"input\"", &format!("path = \"input\"\n{lines}"), 1))
}

#[track_caller]
fn told(refused: Result<JobFile, ConfigError>, message: &str, help: &str) {
    let error = refused.expect_err(message);
    assert!(error.to_string().ends_with(message), "{error}");
    let said = error.help().unwrap_or_default();
    assert!(!help.is_empty() && said.contains(help), "help is: {said}");
}

#[test]
fn what_is_not_said_has_the_defaults_of_the_field() {
    let file = parse(WORD_COUNT).expect("a good job file");
    assert_eq!((file.checkpoint.alignment, file.checkpoint.max_concurrent), (AlignmentOptions::Aligned, 1));
    assert_eq!(file.restart, RestartStrategy::default());
    assert_eq!(file.operators[&name("split")].on_error, OnError::Fail);
    let source = &file.sources[&name("text")];
    assert_eq!(source.event_time, EventTimeOptions::default());
    assert_eq!(source.watermarks, WatermarkOptions::default());
}

#[test]
fn everything_that_is_said_arrives() {
    let file = parse(FULL).expect("a good job file");
    assert_eq!(file.checkpoint.alignment, AlignmentOptions::Unaligned { timeout: 3 * SECOND });
    let budget = RestartBudget { attempts: 7, reset_after: 3600 * SECOND };
    assert_eq!(file.restart, RestartStrategy::FixedDelay { delay: 2 * SECOND, budget });
    let backoff = parse(&FULL.replace("fixed-delay", "exponential-backoff")).expect("a good job file").restart;
    let (initial_delay, max_delay) = (SECOND / 10, 10 * SECOND);
    let expected = Backoff { initial_delay, max_delay, multiplier: 1.5, jitter: 0.25, budget };
    assert_eq!(backoff, RestartStrategy::ExponentialBackoff(expected));
    let none = parse(&FULL.replace("fixed-delay", "none")).expect("a good job file").restart;
    assert_eq!(none, RestartStrategy::None);
    let on_error = ["split", "count", "join"].map(|operator| file.operators[&name(operator)].on_error);
    assert_eq!(on_error, [OnError::DeadLetter, OnError::Skip, OnError::Fail]);
    let source = &file.sources[&name("text")];
    let from = TimeFrom::Json("/time".parse().expect("a pointer"));
    assert_eq!(source.event_time, EventTimeOptions { from, unit: TimeUnit::Rfc3339, on_missing: OnMissing::None });
    let csv = parse(&FULL.replace("from = \"json\"", "from = \"csv\"")).expect("a good job file");
    let from = &csv.sources[&name("text")].event_time.from;
    assert_eq!(*from, TimeFrom::Csv { column: 2, separator: b';' });
    let strategy = WatermarkStrategy::Bounded { max_out_of_orderness: SECOND };
    assert_eq!(source.watermarks, WatermarkOptions { strategy, idle_timeout: Some(30 * SECOND) });
}

#[test]
fn inputs_can_be_given_by_name() {
    let file = parse(FULL).expect("a good job file");
    let input = |from: &str, port: Option<&str>, input: &str| InputRef {
        from: name(from),
        port: port.map(str::to_owned),
        input: InputPlace::Name(input.to_owned()),
    };
    let expected = [
        input("split", None, "orders"),
        input("numbers", None, "rules"),
        input("split", Some("dead-letters"), "rules"),
    ];
    assert_eq!(file.operators[&name("join")].inputs, expected);
    refused(
        "input = \"text\"",
        "input = { in = \"text\" }",
        "jobs/job.toml:9: operator.split.input: it holds one name; a list or a table is what inputs holds",
        "write inputs = { in = \"text\" }",
    );
    refused(
        "input = \"text\"",
        "input = [\"text\", [\"split:late\", \"text\"]]",
        "jobs/job.toml:9: operator.split.input: it holds one name; a list or a table is what inputs holds",
        "write inputs = [\"text\", [\"split:late\", \"text\"]]",
    );
    refused(
        "input = \"count\"",
        "inputs = { in = \"count\" }",
        "jobs/job.toml:17: sink.out.inputs: the inputs of a sink have no names",
        "inputs = [\"a\", \"b\"]",
    );
    refused(
        "input = \"text\"",
        "inputs = { in = [\"text\", [\"text\"]] }",
        "jobs/job.toml:11: operator.split.inputs.in[1]: lists of inputs nest no deeper than two levels",
        "",
    );
}

#[test]
fn a_value_out_of_its_range_is_told_with_what_it_means() {
    told(with("[checkpoint]\ninterval = '0ms'"), "0ms is outside of 1ms to 30d", "\"1s\" is the default");
    told(with("[checkpoint]\nmax_concurrent = 0"), "0 is outside of 1 to 16", "1 is the default");
    told(with("[restart]\nattempts = 0"), "0 is outside of 1 to 1000000", "strategy = \"none\"");
    told(with("[restart]\nmultiplier = 0.5"), "0.5 is outside of 1 to 100", "2.0 doubles them");
    told(with("[restart]\njitter = 2"), "2 is outside of 0 to 1", "a tenth");
    told(with("[restart]\ndelay = '2d'"), "2d is outside of 0ms to 1d", "within a day");
    refused(
        "[job]",
        "[job]\nparallelism = 0",
        "jobs/job.toml:3: job.parallelism: 0 is outside of 1 to 32768",
        "subtasks that work side by side",
    );
}

#[test]
fn what_does_not_go_together_is_refused_with_the_reason() {
    told(
        with("[checkpoint]\nalignment_timeout = '1s'"),
        "checkpoint.alignment_timeout: aligned barriers wait without a limit, so there is nothing to limit",
        "alignment = \"unaligned\"",
    );
    told(
        with("[checkpoint]\nalignment = 'unaligned'\nmax_concurrent = 2"),
        "checkpoint.max_concurrent: 2 unaligned checkpoints at once would hold each other's records",
        "set it to 1",
    );
    refused(
        "name = \"word-count\"",
        "name = 'word-count'\nguarantee = 'at-least-once'\n[checkpoint]\nalignment = 'unaligned'",
        "jobs/job.toml:6: checkpoint.alignment: with the guarantee at-least-once barriers hold nothing, so there is nothing to overtake",
        "guarantee = \"exactly-once\"",
    );
    told(
        with("[restart]\ninitial_delay = '2m'"),
        "restart.max_delay: it is shorter than initial_delay",
        "delays grow from initial_delay to max_delay",
    );
}

#[test]
fn a_key_of_another_restart_strategy_is_warned_of_with_the_keys_that_count() {
    let warnings = |restart: &str| with(&format!("[restart]\n{restart}")).expect("it can run").warnings;
    assert_eq!(
        warnings("delay = '1s'\njitter = 0.5"),
        [
            "restart.delay has no effect with strategy = \"exponential-backoff\", which goes by attempts, initial_delay, max_delay, \
             multiplier, jitter, reset_after"
        ]
    );
    assert_eq!(
        warnings("strategy = 'fixed-delay'\njitter = 0.5"),
        ["restart.jitter has no effect with strategy = \"fixed-delay\", which goes by attempts, delay, reset_after"]
    );
    assert_eq!(
        warnings("strategy = 'none'\nattempts = 3"),
        ["restart.attempts has no effect with strategy = \"none\""]
    );
    assert_eq!(warnings("strategy = 'fixed-delay'\ndelay = '2s'"), [""; 0]);
}

#[test]
fn event_times_must_be_somewhere_for_watermarks_to_be_made_from_them() {
    let watermark = "[source.text.watermark]\nstrategy = 'monotonous'";
    told(
        with_source(watermark),
        "source.text.watermark: its records have no event times to make watermarks from",
        "from = \"json\"",
    );
    with_source(&format!("[source.text.event_time]\nfrom = 'csv'\ncolumn = 0\n{watermark}")).expect("a column");
    told(with_source("event_time.from = 'json'"), "[source.text.event_time] has no key 'field'", "add field");
    told(with_source("event_time.from = 'csv'"), "[source.text.event_time] has no key 'column'", "add column");
    let bad = with_source("event_time = { from = 'json', field = 'time' }").expect_err("no slash").to_string();
    assert!(
        bad.ends_with("'time' is no JSON pointer: write /name for a field, /outer/inner for one within another"),
        "{bad}"
    );
    for separator in ["", "ab", "5", "-", "\\\"", "é"] {
        let bad = with_source(&format!("event_time = {{ separator = \"{separator}\" }}")).expect_err(separator);
        assert!(bad.to_string().contains("can't separate columns"), "{bad}");
    }
}

#[test]
fn a_generator_can_make_event_times_itself_or_have_them_in_its_lines() {
    let generator = |lines: &str| {
        parse(&format!(
            "[job]\nname = 'a'\n[source.g]\ntype = 'generator'\n{lines}\n[source.g.watermark]\nstrategy = 'monotonous'"
        ))
    };
    let own = generator("event_time = 'id'").expect("its own");
    assert_eq!(own.sources[&name("g")].event_time, EventTimeOptions::default());
    let csv = generator("event_time = { from = 'csv', column = 0 }").expect("in its lines");
    assert_eq!(csv.sources[&name("g")].event_time.from, TimeFrom::Csv { column: 0, separator: b',' });
    told(
        generator(""),
        "source.g.watermark: its records have no event times to make watermarks from",
        "event_time table",
    );
    told(generator("event_time = 'ids'"), "source.g.event_time = \"ids\" is not known", "did you mean 'id'?");
    let file = with_source("event_time = 'id'").expect_err("a file has no numbers").to_string();
    assert!(file.ends_with("source.text.event_time is the text \"id\"; it must be a table"), "{file}");
}

/// A job with two Kafka sinks, the second with `lines` more.
fn two_kafka_sinks(guarantee: &str, lines: &str) -> Result<JobFile, ConfigError> {
    let kafka = "type = 'kafka'\nbrokers = 'a:1,b:2'\ninput = 'numbers'";
    parse(&format!(
        "[job]\nname = 'copy'\nguarantee = '{guarantee}'\n[source.numbers]\ntype = 'generator'\n[sink.a]\ntopic = 'a'\n{kafka}\n\
         [sink.b]\ntopic = 'b'\n{lines}\n{kafka}\n"
    ))
}

#[test]
fn kafka_sinks_that_share_a_transaction_say_the_same_of_it() {
    two_kafka_sinks("exactly-once", "partition = 3").expect("what is a sink's own may differ");
    for (line, key) in [
        ("transaction_timeout = '1m'", "transaction_timeout"),
        ("marker_topic = 'm'", "marker_topic"),
        ("properties = { 'client.id' = 'x' }", "properties"),
    ] {
        let refused = two_kafka_sinks("exactly-once", line);
        let message = "it isn't that of sink 'a', and with exactly-once all Kafka sinks share a transaction";
        told(refused, &format!("jobs/job.toml:13: sink.b.{key}: {message}"), "at-least-once");
        two_kafka_sinks("at-least-once", line).expect("each has its own producer");
    }
}

#[test]
fn the_marker_is_not_among_the_records_of_a_sink() {
    let message =
        "'lockgate-copy-marker' is the topic of the marker, which must not be among the records of the output";
    let into = |topic: &str, guarantee: &str| {
        parse(&format!(
            "[job]\nname = 'copy'\nguarantee = '{guarantee}'\n[source.numbers]\ntype = 'generator'\n[sink.a]\ntype = 'kafka'\n\
             brokers = 'a:1'\ninput = 'numbers'\ntopic = '{topic}'\n"
        ))
    };
    let refused = into("lockgate-copy-marker", "exactly-once");
    told(refused, &format!("jobs/job.toml:10: sink.a.topic: {message}"), "marker_topic");
    into("lockgate-copy-marker", "at-least-once").expect("it has no marker");
    into("lockgate-other-marker", "exactly-once").expect("another topic");
}

#[test]
fn a_kafka_sink_has_an_order_unless_it_deals_its_records_out() {
    for (partition, ordered) in [("'key'", true), ("3", true), ("'round-robin'", false)] {
        let file = two_kafka_sinks("exactly-once", &format!("partition = {partition}")).expect("a job");
        let sinks = file.graph().sinks.into_iter().map(|sink| sink.ordered).collect::<Vec<_>>();
        assert_eq!(sinks, [true, ordered], "{partition}");
    }
}

/// A job with a Kafka sink that has a transaction of 10 s, and checkpoints so far apart.
fn transaction_of_10_s(guarantee: &str, interval: &str) -> Result<JobFile, ConfigError> {
    parse(&format!(
        "[job]\nname = 'copy'\nguarantee = '{guarantee}'\n[source.numbers]\ntype = 'generator'\n[checkpoint]\ninterval = '{interval}'\n\
         [sink.a]\ntype = 'kafka'\nbrokers = 'a:1'\ntopic = 'a'\ninput = 'numbers'\ntransaction_timeout = '10s'\n"
    ))
}

#[test]
fn a_transaction_has_to_outlive_a_checkpoint() {
    for interval in ["10s", "11s"] {
        let message = format!(
            "10s is too short: a transaction is open from one checkpoint to the next, {interval} (checkpoint.interval), so that the \
             brokers would abort each"
        );
        let refused = transaction_of_10_s("exactly-once", interval);
        told(refused, &format!("jobs/job.toml:13: sink.a.transaction_timeout: {message}"), "interval of [checkpoint]");
        transaction_of_10_s("at-least-once", interval).expect("it has no transactions");
    }
    for (interval, warns) in [("9999ms", true), ("5001ms", true), ("5s", false)] {
        let warnings = transaction_of_10_s("exactly-once", interval).expect("it can run").warnings;
        let is_told = warnings.iter().any(|warning| warning.contains("transaction_timeout of [sink.a] is 10s"));
        assert_eq!(is_told, warns, "{interval}: {warnings:?}");
    }
}

#[test]
fn a_buffer_holds_the_largest_record_that_is_allowed() {
    let sinks = |guarantee: &str, bytes: u64| {
        let kafka = "type = 'kafka'\nbrokers = 'a:1'\ninput = 'numbers'\nbuffer = '4MiB'";
        let properties = format!("properties = {{ 'message.max.bytes' = '{bytes}' }}");
        parse(&format!(
            "[job]\nname = 'copy'\nguarantee = '{guarantee}'\n[source.numbers]\ntype = 'generator'\n[sink.a]\ntopic = 'a'\n{kafka}\n\
             {properties}\n[sink.b]\ntopic = 'b'\n{kafka}\n{properties}\n"
        ))
    };
    // Two buffers of 4 MiB together, in two producers; or one in each.
    for (guarantee, whose) in
        [("exactly-once", "each of two transactions has half of buffer"), ("at-least-once", "that is its buffer")]
    {
        sinks(guarantee, 4 << 20).expect("it just fits");
        let message =
            "a record of \"message.max.bytes\" = 4194305 doesn't fit into librdkafka's queue, which holds 4MiB";
        let refused = sinks(guarantee, (4 << 20) + 1);
        told(refused, &format!("jobs/job.toml:11: sink.a.buffer: {message}: {whose}"), "raise it to");
    }
}
