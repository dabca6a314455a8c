//! The pair without any broker.

use super::*;

#[test]
fn a_transaction_is_too_old_a_little_before_the_brokers_abort_it() {
    for (timeout_ms, age_ms) in [(1_000, 800), (10_000, 8_000), (25_000, 20_000), (300_000, 295_000)] {
        assert_eq!(age_max(Duration::from_millis(timeout_ms)), Duration::from_millis(age_ms));
    }
}

/// A pair of which brokers were away before it begins anything, and are away still.
fn bereft() -> Pair {
    let [job, name] = ["copy", "out"].map(|name| Name::new(name).expect("a name"));
    let free = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let brokers = free.local_addr().expect("bound").to_string();
    let cluster = Cluster { brokers, properties: Default::default(), properties_file: None };
    let (topics, timeout) = (["out".to_owned()].into(), Duration::from_secs(300));
    let options =
        PairOptions { job: &job, name: &name, cluster: &cluster, topics, timeout, buffer_bytes: 8 << 20, subtasks: 2 };
    let pair = Pair::open(&options, &Arc::new(Ledgers::new(3, false))).expect("opened");
    let heard = &pair.producer(Transaction::A).context().listener;
    rdkafka::ClientContext::error(heard, KafkaError::Global(Code::BrokerTransportFailure), "away");
    pair
}

#[test]
fn who_looks_for_what_hangs_keeps_nobody_from_a_barrier_or_a_commit() {
    let pair = bereft();
    std::thread::scope(|scope| {
        let looking = scope.spawn(|| pair.allow(&pair.name, 0, Turn(0)).map(|producer| producer.is_some()));
        while pair.lookout.try_watch(Transaction::A).is_some() {
            std::thread::yield_now();
        }
        assert!(!pair.would_allow(1, Turn(0)), "somebody looks already");
        assert!(pair.allow(&pair.name, 1, Turn(0)).expect("it is asked again").is_none());
        assert_eq!(pair.cut(1, Epoch(1), false), Turn(0));
        assert!(!looking.is_finished(), "it looks until the attempt is over");
        pair.ledgers().close();
        assert!(looking.join().expect("no panic").is_err());
    });
}

#[test]
fn a_call_that_fails_for_good_is_not_called_again_and_one_that_may_be_is_until_the_time_is_over() {
    let mut calls = 0;
    let minute = Duration::from_secs(60);
    let outcome = until(
        minute,
        || false,
        |_| {
            calls += 1;
            if calls < 3 { Err(KafkaError::Flush(Code::OperationTimedOut)) } else { Err(KafkaError::Canceled) }
        },
    );
    assert_eq!((outcome, calls), (Err(KafkaError::Canceled), 3));
    let late = || Err(KafkaError::Flush(Code::OperationTimedOut));
    assert_eq!(until(Duration::ZERO, || false, |_| late()), late());
    assert_eq!(until(minute, || true, |_| late()), late());
}
