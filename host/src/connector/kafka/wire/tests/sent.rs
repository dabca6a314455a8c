//! What goes over the wire, byte for byte.

use kafka_protocol::messages::{
    DescribeTransactionsRequest, InitProducerIdRequest, ListTransactionsRequest, TransactionalId,
};
use kafka_protocol::protocol::StrBytes;

use super::super::Security;
use super::super::connection::Connection;
use super::script::{Answer, broker, settings, versions};

#[test]
fn requests_have_their_number_version_and_header() {
    let list = [0, 0, 0, 0, 0, 0, 0, 1, 1, 0];
    // Tags of the header, throttle time, one transaction without an error.
    let described = [
        &[0, 0, 0, 0, 0, 2, 0, 0][..],
        &[2, b't', 8],
        b"Ongoing",
        &[0, 0, 0x75, 0x30],
        &[0; 7],
        &[9],
        &[0; 7],
        &[7],
        &[0, 4],
        &[1, 0, 0],
    ]
    .concat();
    let fenced = [&[0, 0, 0, 0, 0, 0, 0][..], &[0; 7], &[7], &[0, 5, 0]].concat();
    let answers = vec![
        versions(&[(22, 0, 3), (65, 0, 0), (66, 0, 9)]),
        Answer::Body(list.to_vec()),
        Answer::Body(described),
        Answer::Body(fenced),
    ];
    let (address, broker) = broker(answers);
    let mut connection = Connection::open(&address, &settings(&address, Security::default())).expect("a connection");
    assert_eq!(connection.call(&ListTransactionsRequest::default()).expect("a list").transaction_states, []);
    let id = || TransactionalId(StrBytes::from_static_str("t"));
    let request = DescribeTransactionsRequest::default().with_transactional_ids(vec![id()]);
    let told = connection.call(&request).expect("described").transaction_states.remove(0);
    let facts = (
        told.transaction_state.as_str(),
        told.transaction_timeout_ms,
        told.transaction_start_time_ms,
        *told.producer_id,
    );
    assert_eq!((facts, told.producer_epoch), (("Ongoing", 30_000, 9, 7), 4));
    let request = InitProducerIdRequest::default().with_transactional_id(Some(id())).with_transaction_timeout_ms(1);
    let fenced = connection.call(&request).expect("fenced");
    assert_eq!((*fenced.producer_id, fenced.producer_epoch), (7, 5));
    drop(connection);
    let requests = broker.join().expect("a broker");
    let [asked, listed, described, fenced] = &requests[..] else { panic!("{requests:?}") };
    assert_eq!(asked[..8], [0, 18, 0, 3, 0, 0, 0, 1]);
    assert_eq!(asked[8..13], [0, 2, b'm', b'e', 0]);
    let no_filters_and_any_duration = [&[1, 1][..], &[0xff; 8], &[0]].concat();
    assert_eq!(*listed, [&[0, 66, 0, 1, 0, 0, 0, 2, 0, 2, b'm', b'e', 0][..], &no_filters_and_any_duration].concat());
    assert_eq!(*described, [0, 65, 0, 0, 0, 0, 0, 3, 0, 2, b'm', b'e', 0, 2, 2, b't', 0]);
    let no_producer = [&[0xff; 8][..], &[0xff, 0xff]].concat();
    assert_eq!(
        *fenced,
        [&[0, 22, 0, 3, 0, 0, 0, 4, 0, 2, b'm', b'e', 0, 2, b't', 0, 0, 0, 1][..], &no_producer, &[0]].concat()
    );
}
