//! The requests that the tools send, with their numbers, versions and answers.
//!
//! Only the flexible versions of each: in those, no answer can lie about a length (see [`Guarded`](super::guarded::Guarded)).
//! Kafka has had them since 3.0, which is also the first that can list transactions.
//!
//! Invariant: a request and its answer are of the same number and version.

use kafka_protocol::messages::{
    ApiKey, ApiVersionsRequest, ApiVersionsResponse, ConsumerGroupDescribeRequest, ConsumerGroupDescribeResponse,
    DescribeClusterRequest, DescribeClusterResponse, DescribeConfigsRequest, DescribeConfigsResponse,
    DescribeGroupsRequest, DescribeGroupsResponse, DescribeProducersRequest, DescribeProducersResponse,
    DescribeTransactionsRequest, DescribeTransactionsResponse, FindCoordinatorRequest, FindCoordinatorResponse,
    InitProducerIdRequest, InitProducerIdResponse, ListTransactionsRequest, ListTransactionsResponse, MetadataRequest,
    MetadataResponse, SaslAuthenticateRequest, SaslAuthenticateResponse, WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
};
use kafka_protocol::protocol::{Decodable, Encodable, HeaderVersion};

pub(super) trait Call: Encodable + HeaderVersion {
    type Answer: Decodable + HeaderVersion;
    const KEY: ApiKey;
    const NAME: &'static str;
    /// The first and last version that are spoken.
    const VERSIONS: (i16, i16);
    /// The Kafka that has the first version.
    const SINCE: &'static str;
}

macro_rules! calls {
    ($($name:literal $request:ident => $answer:ident = $key:ident, $first:literal to $last:literal, $since:literal;)*) => {
        $(impl Call for $request {
            type Answer = $answer;
            const KEY: ApiKey = ApiKey::$key;
            const NAME: &'static str = $name;
            const VERSIONS: (i16, i16) = ($first, $last);
            const SINCE: &'static str = $since;
        })*
    };
}

calls! {
    "ApiVersions" ApiVersionsRequest => ApiVersionsResponse = ApiVersions, 3 to 3, "2.4";
    "SaslAuthenticate" SaslAuthenticateRequest => SaslAuthenticateResponse = SaslAuthenticate, 2 to 2, "2.4";
    "Metadata" MetadataRequest => MetadataResponse = Metadata, 9 to 12, "2.4";
    "DescribeCluster" DescribeClusterRequest => DescribeClusterResponse = DescribeCluster, 0 to 1, "2.8";
    "DescribeConfigs" DescribeConfigsRequest => DescribeConfigsResponse = DescribeConfigs, 4 to 4, "2.6";
    "DescribeGroups" DescribeGroupsRequest => DescribeGroupsResponse = DescribeGroups, 5 to 6, "2.4";
    "ConsumerGroupDescribe" ConsumerGroupDescribeRequest => ConsumerGroupDescribeResponse = ConsumerGroupDescribe, 0 to 1, "4.0";
    "FindCoordinator" FindCoordinatorRequest => FindCoordinatorResponse = FindCoordinator, 4 to 5, "3.0";
    "ListTransactions" ListTransactionsRequest => ListTransactionsResponse = ListTransactions, 0 to 1, "3.0";
    "DescribeTransactions" DescribeTransactionsRequest => DescribeTransactionsResponse = DescribeTransactions, 0 to 0, "3.0";
    "DescribeProducers" DescribeProducersRequest => DescribeProducersResponse = DescribeProducers, 0 to 0, "2.8";
    "InitProducerId" InitProducerIdRequest => InitProducerIdResponse = InitProducerId, 2 to 4, "2.4";
    "WriteTxnMarkers" WriteTxnMarkersRequest => WriteTxnMarkersResponse = WriteTxnMarkers, 1 to 1, "2.8";
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::guarded::Guarded;
    use super::*;

    /// Reads bytes as every answer in every version.
    fn read<C: Call>(bytes: &[u8]) {
        for version in C::VERSIONS.0..=C::VERSIONS.1 {
            // That it comes to an end is all that is asked here.
            let _any = C::Answer::decode(&mut Guarded::new(bytes.to_vec().into()), version);
        }
    }

    proptest! {
        #[test]
        fn bytes_from_outside_are_the_answer_of_a_broker_or_none(
            // Lengths are small mostly, and so are those that lie.
            bytes in prop::collection::vec(prop_oneof![4 => 0u8..4, 2 => any::<u8>(), 1 => Just(0xff)], 0..300)
        ) {
            read::<ApiVersionsRequest>(&bytes);
            read::<SaslAuthenticateRequest>(&bytes);
            read::<MetadataRequest>(&bytes);
            read::<DescribeClusterRequest>(&bytes);
            read::<DescribeConfigsRequest>(&bytes);
            read::<DescribeGroupsRequest>(&bytes);
            read::<ConsumerGroupDescribeRequest>(&bytes);
            read::<FindCoordinatorRequest>(&bytes);
            read::<ListTransactionsRequest>(&bytes);
            read::<DescribeTransactionsRequest>(&bytes);
            read::<DescribeProducersRequest>(&bytes);
            read::<InitProducerIdRequest>(&bytes);
        }
    }

    fn check<C: Call>() {
        let (first, last) = C::VERSIONS;
        for version in first..=last {
            // Two is the header of flexible requests, one that of flexible answers; ApiVersions answers without.
            assert_eq!(C::header_version(version), 2, "{} {version}", C::NAME);
            let expected = i16::from(C::NAME != "ApiVersions");
            assert_eq!(C::Answer::header_version(version), expected, "{} {version}", C::NAME);
        }
    }

    #[test]
    fn only_flexible_versions_are_spoken() {
        check::<ApiVersionsRequest>();
        check::<SaslAuthenticateRequest>();
        check::<MetadataRequest>();
        check::<DescribeClusterRequest>();
        check::<DescribeConfigsRequest>();
        check::<DescribeGroupsRequest>();
        check::<ConsumerGroupDescribeRequest>();
        check::<FindCoordinatorRequest>();
        check::<ListTransactionsRequest>();
        check::<DescribeTransactionsRequest>();
        check::<DescribeProducersRequest>();
        check::<InitProducerIdRequest>();
        check::<WriteTxnMarkersRequest>();
    }
}
