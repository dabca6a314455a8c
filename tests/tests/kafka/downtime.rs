//! A job may be down for any time: when it comes back, the broker has aborted its transaction and forgotten its group, and
//! nothing is lost or doubled.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use lockgate_tests::kafka::{Broker, Client, kafka_missing};
use lockgate_tests::{KafkaJob, wait_long_until};

use crate::brokers::{lanes, side_by_side};
use crate::kill_matrix::{Copy, points};

/// Whether the broker still holds a transaction of this job open.
pub fn has_open_transaction(client: &Client, job: &KafkaJob) -> bool {
    let transactions = client.transactions(&format!("{}/", job.name()));
    transactions.iter().any(|transaction| ["Ongoing", "PrepareCommit", "PrepareAbort"].contains(&&*transaction.state))
}

/// Kills a job at `point`: one that has done nothing yet, or one that has left an undecided checkpoint behind.
fn killed_at<'a>(point: &str, fresh: bool, client: &'a Client, brokers: &str) -> Option<Copy<'a>> {
    let mut copy = Copy::new(client, brokers);
    copy.job.change("sink.out", "transaction_timeout", "'5s'");
    if !fresh {
        copy.crash_undecided();
    }
    copy.crash(point).then_some(copy)
}

/// A broker that forgets the offsets of a group a minute after they were committed.
fn forgetful() -> Broker {
    Broker::start_with(&[("offsets.retention.minutes", "1"), ("offsets.retention.check.interval.ms", "1000")])
}

#[test]
fn the_output_is_exact_after_a_kill_anywhere_and_a_downtime_longer_than_transactions_and_groups_last() {
    if kafka_missing("downtimes longer than transactions and groups last") {
        return;
    }
    let broker = forgetful();
    let (clients, killed) = (lanes(&broker), Mutex::new(Vec::new()));
    let (were_open, were_known) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let points = points(&["kafka.", "runtime.", "store.publish.", "store.withdraw."]);
    side_by_side(&clients, points, |point, client| {
        let copies = [true, false].map(|fresh| killed_at(&point, fresh, client, broker.address()));
        let copies = copies.into_iter().flatten().map(|copy| (point.clone(), copy)).collect::<Vec<_>>();
        assert!(!copies.is_empty(), "no run ever comes by the crash point {point}");
        for (_, Copy { job, .. }) in &copies {
            were_open.fetch_add(usize::from(has_open_transaction(client, job)), Ordering::Relaxed);
            were_known.fetch_add(usize::from(!client.group_offsets(&job.group()).is_empty()), Ordering::Relaxed);
        }
        killed.lock().expect("no lane has failed").extend(copies);
    });
    let killed = killed.into_inner().expect("no lane has failed");
    // All are down until the broker knows nothing any more of the one that it remembers longest.
    for (point, Copy { job, .. }) in &killed {
        wait_long_until(&format!("the broker forgets the job that was killed at {point}"), || {
            !has_open_transaction(&clients[0], job) && clients[0].group_offsets(&job.group()).is_empty()
        });
    }
    let (were_open, were_known) = (were_open.into_inner(), were_known.into_inner());
    assert!(were_open > 10 && were_known > 10, "{were_open} transactions were open, {were_known} groups known");
    side_by_side(&clients, killed, |(point, mut copy), _| {
        // The broker knows how far the job has come only once it commits something new for each partition.
        copy.add_records();
        // Nothing is to be too old from here on, however busy the machine is.
        copy.job.change("sink.out", "transaction_timeout", "'60s'");
        copy.finish(&point);
    });
}
