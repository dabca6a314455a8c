#!/usr/bin/env bash
# The long test campaigns; tests/run.sh runs a slice of each.
#
#   tests/campaign.sh crash --kills 100 --bytes 1G [--seed N]   SIGKILL at random moments of a word count
#   tests/campaign.sh pairs                                     SIGKILL at each pair of named points
#   tests/campaign.sh kafka [--records 1000000 --kills 30 --bounces 3 --seed N]
#                                                               SIGKILL at random moments of a copy from Kafka to Kafka, and of the broker
#   tests/campaign.sh sim [SEEDS]                               the protocol under the simulator, a million seeds by default
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

.ci/setup.sh host wasm
CARGO_TARGET_DIR=$(.ci/setup.sh target-dir)
export CARGO_TARGET_DIR
if [ "${1:-}" = sim ]; then
    exec env "LOCKGATE_SIM_SEEDS=${2:-1000000}" cargo test --workspace --test simulation -- --nocapture
fi
cargo build --workspace --bins
exec "$CARGO_TARGET_DIR/debug/campaign" "$@"
