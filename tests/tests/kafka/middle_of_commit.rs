//! The moment between sending a commit and hearing that it was done: what the broker has done is found out and never assumed.

use lockgate_tests::kafka::{Broker, Client};
use lockgate_tests::{
    END_TXN, Fate, KafkaJob, Proxy, Running, assert_exactly_once, numbered, wait_long_until, wait_until,
};

use crate::brokers::{breakable, shared};
use crate::downtime::has_open_transaction;

/// A job behind a proxy whose next commit, which holds records, meets a fate of the test's choice.
struct Interrupted {
    job: KafkaJob,
    proxy: Proxy,
    running: Running,
    client: Client,
}

impl Interrupted {
    /// Returns when the commit has met its fate.
    fn commit(broker: &Broker, fate: Fate) -> Interrupted {
        let (proxy, client) = (Proxy::start(broker.address()), broker.client());
        // So long that the commit after the first record is that of its epoch.
        let job = KafkaJob::copy("commit", &proxy.address()).with("checkpoint", "interval", "'1s'").with(
            "sink.out",
            "transaction_timeout",
            "'6s'",
        );
        job.create_topics(&client, 2);
        client.produce(&job.input(), &numbered(0..1_000));
        job.catch_up(&client);
        client.produce(&job.input(), &numbered(1_000..2_000));
        let before = client.end_offsets(&job.output(), false);
        let mut running = job.folder.start();
        running.wait_until("new records", || client.end_offsets(&job.output(), false) != before);
        proxy.arm(END_TXN, 1, fate);
        running.wait_until("the commit has met its fate", || proxy.has_met());
        Interrupted { job, proxy, running, client }
    }

    fn kill(&mut self) {
        self.running.kill();
        wait_until("the process is dead", || !self.running.is_alive());
    }

    fn wait_for_timeout(&self) {
        wait_long_until("the broker's end of the transaction", || !has_open_transaction(&self.client, &self.job));
    }

    /// Runs the job again, with more records.
    fn assert_exact(&self) {
        self.client.produce(&self.job.input(), &numbered(2_000..3_000));
        self.job.catch_up(&self.client);
        assert_exactly_once(3_000, &self.client.read(&self.job.output(), true));
    }

    /// Lets the process go on, with more records.
    fn assert_goes_on(self) {
        let Interrupted { job, mut running, client, .. } = self;
        client.produce(&job.input(), &numbered(2_000..3_000));
        job.wait_until_caught_up(&mut running, &client);
        running.terminate();
        running.wait().assert_success();
        assert_exactly_once(3_000, &client.read(&job.output(), true));
    }
}

#[test]
fn a_commit_that_never_arrived_is_done_again_by_the_next_process() {
    let Some((broker, _)) = shared("lost commits") else { return };
    for long in [false, true] {
        let mut lost = Interrupted::commit(broker, Fate::Lost { cut: false });
        lost.kill();
        if long {
            lost.wait_for_timeout();
        }
        lost.assert_exact();
    }
}

#[test]
fn a_commit_whose_answer_never_arrived_is_not_done_again() {
    let Some((broker, _)) = shared("unanswered commits") else { return };
    let mut unanswered = Interrupted::commit(broker, Fate::Unanswered { cut: false });
    unanswered.kill();
    unanswered.assert_exact();
}

#[test]
fn a_connection_that_breaks_in_the_middle_of_a_commit_stops_nothing() {
    let Some((broker, _)) = shared("broken connections") else { return };
    for fate in [Fate::Lost { cut: true }, Fate::Unanswered { cut: true }] {
        println!("{fate:?}");
        Interrupted::commit(broker, fate).assert_goes_on();
    }
}

#[test]
fn a_commit_that_reaches_a_paused_broker_is_certain_before_anything_goes_on() {
    let Some(broker) = breakable("a broker that is paused in the middle of a commit") else { return };
    for long in [false, true] {
        let mut held = Interrupted::commit(&broker, Fate::Held);
        broker.pause();
        // Now it waits at the broker's door, and the one who sent it is gone.
        held.proxy.release();
        held.kill();
        broker.resume();
        if long {
            held.wait_for_timeout();
        }
        held.assert_exact();
    }
}

#[test]
fn a_broker_that_is_restarted_in_the_middle_of_a_commit_stops_nothing() {
    let Some(broker) = breakable("a broker that is restarted in the middle of a commit") else { return };
    let held = Interrupted::commit(&broker, Fate::Held);
    broker.kill();
    broker.restart();
    held.proxy.release();
    held.assert_goes_on();
}
