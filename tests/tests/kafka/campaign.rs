//! The copy of a topic is exact after kills at random moments and a broker that was killed. `tests/campaign.sh kafka` does more
//! of the same.

use lockgate_tests::KafkaCampaign;
use lockgate_tests::kafka::kafka_missing;

#[test]
fn a_copy_is_exact_after_kills_at_random_moments_and_a_bounced_broker() {
    if kafka_missing("the copy campaign") {
        return;
    }
    let report = KafkaCampaign { seed: 1, records: 100_000, kills: 6, bounces: 1 }.run();
    assert_eq!((report.kills, report.bounces), (6, 1));
}
