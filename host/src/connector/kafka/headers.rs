//! Record headers between Kafka's form and that of a batch.
//!
//! Invariant: order, repeated names, missing and empty values of headers are kept.

use rdkafka::message::{Headers, OwnedHeaders};

use crate::element::{Batch, Header};

/// Gives the record that was pushed last the headers that librdkafka has for it.
pub fn push_rdkafka_headers<H: Headers>(batch: &mut Batch, headers: Option<&H>) {
    for rdkafka::message::Header { key, value } in headers.into_iter().flat_map(Headers::iter) {
        batch.push_header(Header { name: key, value });
    }
}

/// The headers of a record for librdkafka. `None` if it has none.
pub fn rdkafka_headers(batch: &Batch, index: usize) -> Option<OwnedHeaders> {
    batch.headers(index).fold(None, |known: Option<OwnedHeaders>, Header { name, value }| {
        Some(known.unwrap_or_default().insert(rdkafka::message::Header { key: name, value }))
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::element::Row;

    type Wanted = Vec<(String, Option<Vec<u8>>)>;

    fn batch_of(rows: &[Wanted]) -> Batch {
        let mut batch = Batch::with_capacity(0, 0);
        for row in rows {
            batch.push(Row { key: None, value: None, timestamp: 0 });
            row.iter().for_each(|(name, value)| batch.push_header(Header { name, value: value.as_deref() }));
        }
        batch
    }

    /// Those of a record as librdkafka would have them.
    fn of_row(batch: &Batch, index: usize) -> Wanted {
        let headers = rdkafka_headers(batch, index);
        let headers = headers.iter().flat_map(Headers::iter);
        headers.map(|header| (header.key.to_owned(), header.value.map(<[u8]>::to_owned))).collect()
    }

    proptest! {
        #[test]
        fn headers_pass_through_librdkafka_and_back_as_they_are(
            rows in prop::collection::vec(
                // A name that ends early in C isn't told from a shorter one.
                prop::collection::vec(("[^\0]{0,8}", prop::option::of(prop::collection::vec(any::<u8>(), 0..20))), 0..4),
                0..20,
            )
        ) {
            let batch = batch_of(&rows);
            let found = (0..rows.len()).map(|index| of_row(&batch, index)).collect::<Vec<_>>();
            prop_assert_eq!(&found, &rows);
            let mut again = Batch::with_capacity(0, 0);
            for index in 0..rows.len() {
                again.push(batch.row(index));
                push_rdkafka_headers(&mut again, rdkafka_headers(&batch, index).as_ref());
            }
            prop_assert_eq!(again, batch);
        }
    }

    #[test]
    fn a_record_without_headers_has_none_for_librdkafka() {
        let batch = batch_of(&[vec![], vec![("a".to_owned(), Some(b"1".to_vec())), ("a".to_owned(), None)]]);
        assert!(rdkafka_headers(&batch, 0).is_none());
        let headers = rdkafka_headers(&batch, 1).expect("two headers");
        let found = headers.iter().map(|header| (header.key, header.value)).collect::<Vec<_>>();
        assert_eq!(found, [("a", Some(&b"1"[..])), ("a", None)]);
    }
}
