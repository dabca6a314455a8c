//! A broker that lies, breaks off or says nothing.

use std::time::Duration;

use kafka_protocol::messages::{DescribeClusterRequest, ListTransactionsRequest};

use super::super::connection::Connection;
use super::super::{Address, Client, Security, Settings, WireError};
use super::script::{Answer, broker, settings, versions};

/// Asks for the list of transactions, and expects an error for the second answer.
fn error_of(answer: Answer) -> WireError {
    let (address, broker) = broker(vec![versions(&[(66, 0, 1)]), answer]);
    let settings = settings(&address, Security::default());
    let mut connection =
        Connection::open_within(&address, &settings, Duration::from_millis(300)).expect("a connection");
    let error = connection.call(&ListTransactionsRequest::default()).expect_err("a lie");
    drop(connection);
    broker.join().expect("a broker");
    error
}

/// Tags of the header, throttle time, no error, no unknown filters, one transaction with its tags, tags.
const LIST: &[u8] = &[0, 0, 0, 0, 0, 0, 0, 1, 2, 2, b't', 0, 0, 0, 0, 0, 0, 0, 7, 2, b'E', 0, 0];

#[test]
fn an_answer_that_is_cut_off_anywhere_is_an_error() {
    for length in 0..LIST.len() {
        let error = error_of(Answer::Body(LIST[..length].to_vec()));
        assert!(matches!(error, WireError::Garbled { .. }), "{length}: {error}");
    }
}

#[test]
fn an_answer_with_any_byte_changed_is_read_or_refused() {
    let (address, broker) = {
        let answers = (0..LIST.len()).map(|place| {
            let mut body = LIST.to_vec();
            body[place] = 0xff;
            Answer::Body(body)
        });
        broker([versions(&[(66, 0, 1)])].into_iter().chain(answers).collect())
    };
    let mut connection = Connection::open(&address, &settings(&address, Security::default())).expect("a connection");
    let read = (0..LIST.len()).filter(|_| connection.call(&ListTransactionsRequest::default()).is_ok()).count();
    // Those of the numbers; lengths and the like are refused.
    assert!((1..LIST.len()).contains(&read), "{read} of {}", LIST.len());
    drop(connection);
    broker.join().expect("a broker");
}

#[test]
fn lengths_that_no_answer_has_are_refused_unread() {
    for length in [i32::MAX, i32::MIN, -1, 0x2000_0001] {
        let error = error_of(Answer::Raw(length.to_be_bytes().to_vec()));
        assert!(matches!(error, WireError::Garbled { .. }) && error.to_string().contains("announces"), "{error}");
    }
    let many = [&[0, 0, 0, 0, 0, 0, 0][..], &[0xff, 0xff, 0xff, 0xff, 0x0f], &[0; 30]].concat();
    assert!(matches!(error_of(Answer::Body(many)), WireError::Garbled { .. }));
}

#[test]
fn an_answer_to_another_request_is_refused() {
    let other = [&[0, 0, 0, 27, 0, 0, 0, 9][..], LIST].concat();
    let error = error_of(Answer::Raw(other));
    assert!(error.to_string().contains("it answers request 9"), "{error}");
}

#[test]
fn a_connection_that_breaks_off_or_hangs_is_told_apart() {
    assert!(matches!(error_of(Answer::Raw(Vec::new())), WireError::Broken { .. }));
    assert!(matches!(error_of(Answer::Raw(vec![0, 0, 0, 9, 1])), WireError::Broken { .. }));
    let error = error_of(Answer::Silence);
    assert!(matches!(error, WireError::TooSlow { request: "ListTransactions", .. }), "{error}");
}

#[test]
fn a_broker_that_is_too_old_is_told_so() {
    // In the oldest version: the code, then no versions.
    let (address, old) = broker(vec![Answer::Body(vec![0, 35, 0, 0, 0, 0])]);
    let Err(error) = Connection::open(&address, &settings(&address, Security::default())) else { panic!("it opened") };
    assert!(error.help().contains("Kafka 2.4 or newer"), "{error}");
    old.join().expect("a broker");
    let (address, old) = broker(vec![versions(&[(66, 0, 1)])]);
    let mut connection = Connection::open(&address, &settings(&address, Security::default())).expect("a connection");
    let error = connection.call(&DescribeClusterRequest::default()).expect_err("unknown");
    assert!(error.help().contains("Kafka 2.8 or newer"), "{error}");
    drop(connection);
    old.join().expect("a broker");
}

#[test]
fn what_is_no_broker_is_told_with_the_address() {
    let (address, web) = broker(vec![Answer::Raw(b"HTTP/1.1 400 Bad Request\r\n\r\n".to_vec())]);
    let Err(error) = Connection::open(&address, &settings(&address, Security::default())) else { panic!("it opened") };
    let said = format!("{error}; {}", error.help());
    assert!(said.contains(&address.to_string()) && said.contains("is a Kafka broker"), "{said}");
    web.join().expect("a broker");
}

#[test]
fn when_no_broker_can_be_reached_each_is_named() {
    let closed = |_| {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
        Address { host: "127.0.0.1".to_owned(), port: listener.local_addr().expect("an address").port() }
    };
    let brokers = [0, 1].map(closed).to_vec();
    let settings = Settings { brokers: brokers.clone(), ..settings(&brokers[0], Security::default()) };
    let Err(error) = Client::connect(settings) else { panic!("it connected") };
    assert!(brokers.iter().all(|broker| error.to_string().contains(&broker.to_string())), "{error}");
}
