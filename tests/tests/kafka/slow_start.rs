//! A cluster that is there and doesn't answer in time when the job is started, as one that has just come up on a busy machine.

use lockgate_tests::{KafkaJob, assert_exactly_once, numbered, wait_long_until};

use crate::brokers::breakable;

#[test]
fn a_broker_that_is_slow_to_answer_at_the_start_is_waited_for_and_that_is_told() {
    let Some(broker) = breakable("a broker that is slow at the start") else { return };
    let job = KafkaJob::copy("late", broker.address());
    let client = broker.client();
    job.create_topics(&client, 2);
    client.produce(&job.input(), &numbered(0..1_000));
    broker.pause();
    let mut running = job.folder.start();
    wait_long_until("an attempt that was in vain", || {
        assert!(running.is_alive(), "it has given up: {}", running.stderr());
        running.stderr().contains("restart 1 of")
    });
    assert!(running.stderr().contains(&format!("no answer from {}", broker.address())), "{}", running.stderr());
    broker.resume();
    job.wait_until_caught_up(&mut running, &client);
    running.terminate();
    running.wait().assert_success();
    assert_exactly_once(1_000, &client.read(&job.output(), true));
}
