//! The output is exact after SIGKILL at random moments. `tests/campaign.sh crash` does more of the same.

use lockgate_tests::CrashCampaign;

#[test]
fn the_output_is_exact_after_kills_at_random_moments() {
    let report = CrashCampaign { seed: 1, text_bytes: 20_000_000, kills: 12 }.run();
    assert_eq!(report.kills, 12);
}
