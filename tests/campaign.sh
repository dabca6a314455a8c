#!/usr/bin/env bash
# The long test campaigns; tests/run.sh runs a slice of each.
#
#   tests/campaign.sh crash --kills 100 --bytes 1G [--seed N]   SIGKILL at random moments of a word count
#   tests/campaign.sh pairs                                     SIGKILL at each pair of named points
#   tests/campaign.sh kafka [--records 1000000 --kills 30 --bounces 3 --seed N]
#                                                               SIGKILL at random moments of a copy from Kafka to Kafka, and of the broker
#   tests/campaign.sh api [SECONDS] [KILLS]                     random requests to the daemon for so long (1800), then SIGKILL of it at
#                                                               random moments (200)
#   tests/campaign.sh sim [SEEDS]                               the protocol under the simulator, a million seeds by default
#   tests/campaign.sh fuzz [SEEDS] [TARGET]                     what comes from outside, made up: so many seeds (20,000) of each target, or of one
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

.ci/setup.sh host wasm
CARGO_TARGET_DIR=$(.ci/setup.sh target-dir)
export CARGO_TARGET_DIR
if [ "${1:-}" = sim ]; then
    exec env "LOCKGATE_SIM_SEEDS=${2:-1000000}" cargo test --workspace --test simulation -- --nocapture
fi
if [ "${1:-}" = fuzz ]; then
    seeds=${2:-20000}
    LOCKGATE_FUZZ_SEEDS=$seeds cargo test --workspace --test fuzz ${3:+"$3"} -- --nocapture
    # What only the crate itself can read has its tests beside it.
    [ -n "${3:-}" ] || PROPTEST_CASES=$seeds cargo test --workspace --lib bytes_from_outside
    exit
fi
if [ "${1:-}" = api ]; then
    .ci/setup.sh schemathesis
    LOCKGATE_SCHEMATHESIS_SECONDS=${2:-1800} cargo test --workspace --test schemathesis -- --nocapture
    exec env "LOCKGATE_SERVE_KILLS=${3:-200}" cargo test --workspace --test serve kills -- --nocapture
fi
cargo build --workspace --bins
exec "$CARGO_TARGET_DIR/debug/campaign" "$@"
