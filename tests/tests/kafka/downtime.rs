//! A job may be down for any time: when it comes back, the broker has aborted its transaction and forgotten its group, and
//! nothing is lost or doubled.

use lockgate_tests::kafka::Client;
use lockgate_tests::{Feed, KafkaJob, assert_exactly_once, wait_long_until};

use crate::brokers::{breakable, shared};
use crate::kill_matrix::{Copy, points};

/// Whether the broker still holds a transaction of this job open.
pub fn has_open_transaction(client: &Client, job: &KafkaJob) -> bool {
    let transactions = client.transactions(&format!("{}/", job.name()));
    transactions.iter().any(|transaction| ["Ongoing", "PrepareCommit", "PrepareAbort"].contains(&&*transaction.state))
}

/// Kills a job at `point`: one that has done nothing yet, or one that has left an undecided checkpoint behind.
fn killed_at<'a>(point: &str, fresh: bool, client: &'a Client, brokers: &str) -> Option<Copy<'a>> {
    let mut copy = Copy::new(client, brokers);
    copy.job.change("sink.out", "transaction_timeout", "'3s'");
    if !fresh {
        copy.crash_undecided();
    }
    copy.crash(point).then_some(copy)
}

#[test]
fn the_output_is_exact_after_a_kill_anywhere_and_a_downtime_longer_than_the_transaction_timeout() {
    let Some((broker, client)) = shared("downtimes longer than the transaction timeout") else { return };
    let (mut killed, mut were_open) = (Vec::new(), 0);
    for point in points(&["kafka.", "runtime.", "store.publish.", "store.withdraw."]) {
        let before = killed.len();
        for fresh in [true, false] {
            let Some(copy) = killed_at(&point, fresh, &client, broker.address()) else { continue };
            were_open += usize::from(has_open_transaction(&client, &copy.job));
            killed.push((point.clone(), copy));
        }
        assert!(killed.len() > before, "no run ever comes by the crash point {point}");
    }
    // The one that was killed last is awaited too, so all of them are down for longer.
    for (point, copy) in &killed {
        wait_long_until(&format!("the broker's end of the transaction at {point}"), || {
            !has_open_transaction(&client, &copy.job)
        });
    }
    assert!(were_open > 10, "only {were_open} transactions were open");
    for (point, copy) in &killed {
        copy.finish(point);
    }
}

#[test]
fn a_downtime_longer_than_the_memory_of_groups_loses_nothing() {
    let what = "a downtime longer than the memory of groups";
    let Some(broker) = breakable(what) else { return };
    let client = broker.client();
    // As long as a transaction with its offsets is open, a group is remembered.
    let job = KafkaJob::copy("forgotten", broker.address()).with("sink.out", "transaction_timeout", "'5s'");
    job.create_topics(&client, 2);
    let mut feed = Feed::new(&client, &job);
    feed.add(500);
    assert!(feed.crash(&job, "kafka.commit.before:3"));
    assert!(!client.group_offsets(&job.group()).is_empty(), "the group is known");
    drop(broker);
    // More than a minute. Others may have the broker meanwhile, but not while it is asked.
    wait_long_until("the broker forgets the group", || {
        breakable(what).is_some_and(|_broker| client.group_offsets(&job.group()).is_empty())
    });
    let _broker = breakable(what);
    feed.add(500);
    job.catch_up(&client);
    assert_exactly_once(feed.count(), &client.read(&job.output(), true));
}
