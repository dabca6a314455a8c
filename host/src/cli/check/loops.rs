//! Whether a job would read its own output from Kafka for ever.
//!
//! A topic that a pattern takes in is an oversight where its records lead back into it. One that a source names may be meant, so that
//! is only a warning; and a bounded source ends all the same.
//!
//! Invariant: no broker is asked; clusters are told apart by the addresses that are given.

use std::collections::BTreeSet;

use crate::cli::CliError;
use crate::config::JobFile;
use crate::connector::{KafkaSourceOptions, SinkOptions, SourceOptions};
use crate::id::Name;
use crate::protocol::Guarantee;

/// # Errors
/// The first pattern that takes in a topic of the job's own, which its records lead to.
pub(super) fn check_loops(file: &JobFile) -> Result<(), CliError> {
    for (source, config) in &file.sources {
        let SourceOptions::Kafka(options) = &config.options else { continue };
        let Some(pattern) = &options.topic_pattern else { continue };
        if let Some((what, topic)) = own_topic(file, source, options) {
            let refused = format!(
                "topic_pattern '{pattern}' of [source.{source}] takes in '{topic}', {what}: the job would read its own output for ever"
            );
            return Err(CliError::unusable(refused).help(
                "exclude it: write the pattern so that it doesn't match that topic, or name the topics with topics; or give the job's \
                 own topic another name",
            ));
        }
    }
    Ok(())
}

/// Topics of the job's own that a source names, which its records lead to.
pub(in crate::cli) fn loop_warnings(file: &JobFile) -> Vec<String> {
    let named = file.sources.iter().filter_map(|(source, config)| {
        let SourceOptions::Kafka(options) = &config.options else { return None };
        let (what, topic) = own_topic(file, source, options)?;
        (options.topic_pattern.is_none() && !options.is_bounded()).then(|| {
            format!(
                "[source.{source}] reads '{topic}', {what}: the job reads its own output, for ever, unless its operators let nothing \
                 through in the end. If that isn't meant, name another topic"
            )
        })
    });
    named.collect()
}

/// A topic that the source reads and its records lead to, with what it is.
fn own_topic(file: &JobFile, source: &Name, options: &KafkaSourceOptions) -> Option<(String, String)> {
    let behind = behind(file, source);
    file.sinks.iter().find_map(|(name, sink)| {
        let SinkOptions::Kafka(written) = &sink.options else { return None };
        if !is_one_cluster(&options.brokers, &written.brokers) {
            return None;
        }
        if behind.contains(name) && options.takes(&written.topic) {
            return Some((format!("the topic of [sink.{name}], which its records reach"), written.topic.clone()));
        }
        let marker = written.marker_topic(&file.job);
        // Each checkpoint writes into it, so there would always be something new to read.
        (file.guarantee == Guarantee::ExactlyOnce && options.takes(&marker))
            .then(|| (format!("the marker topic of [sink.{name}]"), marker))
    })
}

/// A node and all that its records reach.
fn behind<'a>(file: &'a JobFile, source: &'a Name) -> BTreeSet<&'a Name> {
    let operators = file.operators.iter().map(|(name, operator)| (name, &operator.inputs));
    let sinks = file.sinks.iter().map(|(name, sink)| (name, &sink.inputs));
    let readers = operators.chain(sinks).collect::<Vec<_>>();
    let mut reached = BTreeSet::from([source]);
    loop {
        let next = readers
            .iter()
            .find(|(name, inputs)| !reached.contains(name) && inputs.iter().any(|input| reached.contains(&input.from)));
        match next {
            Some((name, _)) => reached.insert(name),
            None => return reached,
        };
    }
}

fn is_one_cluster(one: &str, other: &str) -> bool {
    let addresses = |text: &str| text.split(',').map(|each| each.trim().to_lowercase()).collect::<BTreeSet<_>>();
    !addresses(one).is_disjoint(&addresses(other))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(pattern: &str, input: &str, brokers: &str, guarantee: &str) -> Option<String> {
        let file = file(&format!("topic_pattern = '{pattern}'"), input, brokers, guarantee);
        assert_eq!(loop_warnings(&file), [""; 0], "once is enough");
        check_loops(&file).err().map(|error| error.to_string())
    }

    fn file(topics: &str, input: &str, brokers: &str, guarantee: &str) -> JobFile {
        let text = format!(
            "[job]\nname = 'copy'\nguarantee = '{guarantee}'\n\
             [source.in]\ntype = 'kafka'\nbrokers = 'a:9092, b:9092'\n{topics}\n\
             [source.other]\ntype = 'generator'\n\
             [operator.op]\nwasm = 'op.wasm'\ninput = 'in'\n\
             [sink.rest]\ntype = 'null'\ninput = 'op'\n\
             [sink.out]\ntype = 'kafka'\nbrokers = '{brokers}'\ntopic = 'orders-out'\ninput = '{input}'\n"
        );
        JobFile::parse("job.toml".as_ref(), &text).expect("a good job file")
    }

    #[test]
    fn a_pattern_that_takes_in_what_its_records_lead_to_is_refused() {
        let told = refused("orders-.*", "op", "B:9092", "exactly-once").expect("a loop");
        assert!(told.contains("[source.in] takes in 'orders-out', the topic of [sink.out]"), "{told}");
        for (pattern, input, brokers) in
            [("orders-in", "op", "b:9092"), ("orders-.*", "other", "b:9092"), ("orders-.*", "op", "c:9092")]
        {
            assert_eq!(refused(pattern, input, brokers, "exactly-once"), None, "{pattern} {input} {brokers}");
        }
    }

    #[test]
    fn a_pattern_that_takes_in_the_marker_topic_is_refused_where_there_is_one() {
        let told = refused("lockgate-.*", "other", "a:9092", "exactly-once").expect("a loop");
        assert!(told.contains("takes in 'lockgate-copy-marker', the marker topic of [sink.out]"), "{told}");
        assert_eq!(refused("lockgate-.*", "other", "a:9092", "at-least-once"), None);
    }

    #[test]
    fn a_topic_that_is_named_and_written_as_well_is_a_warning() {
        let warnings = |topics: &str, input: &str, brokers: &str| {
            let file = file(topics, input, brokers, "exactly-once");
            assert!(check_loops(&file).is_ok(), "it may be meant");
            loop_warnings(&file)
        };
        let told = warnings("topics = ['orders', 'orders-out']", "op", "b:9092");
        let [told] = &told[..] else { panic!("{told:?}") };
        assert!(told.contains("[source.in] reads 'orders-out', the topic of [sink.out]"), "{told}");
        let told = warnings("topics = ['lockgate-copy-marker']", "other", "a:9092");
        assert!(told[0].contains("'lockgate-copy-marker', the marker topic of [sink.out]"), "{told:?}");
        for (topics, input, brokers) in [
            ("topics = ['orders']", "op", "b:9092"),
            ("topics = ['orders-out']", "other", "b:9092"),
            ("topics = ['orders-out']", "op", "c:9092"),
            ("topics = ['orders-out']\nmode = 'bounded'", "op", "b:9092"),
        ] {
            assert_eq!(warnings(topics, input, brokers), [""; 0], "{topics} {input} {brokers}");
        }
    }
}
