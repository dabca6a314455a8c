//! Whether a job would read its own output from Kafka for ever.
//!
//! A topic that a source names is meant, even if the job writes it; one that a pattern takes in is an oversight where its records
//! lead back into it.
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
        let text = format!(
            "[job]\nname = 'copy'\nguarantee = '{guarantee}'\n\
             [source.in]\ntype = 'kafka'\nbrokers = 'a:9092, b:9092'\ntopic_pattern = '{pattern}'\n\
             [source.other]\ntype = 'generator'\n\
             [operator.op]\nwasm = 'op.wasm'\ninput = 'in'\n\
             [sink.rest]\ntype = 'null'\ninput = 'op'\n\
             [sink.out]\ntype = 'kafka'\nbrokers = '{brokers}'\ntopic = 'orders-out'\ninput = '{input}'\n"
        );
        let file = JobFile::parse("job.toml".as_ref(), &text).expect("a good job file");
        check_loops(&file).err().map(|error| error.to_string())
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
}
