#!/usr/bin/env bash
# The long test campaigns; tests/run.sh runs a slice of each.
#
#   tests/campaign.sh crash --kills 100 --bytes 1G [--seed N]   SIGKILL at random moments of a word count
#   tests/campaign.sh pairs                                     SIGKILL at each pair of named points
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

.ci/setup.sh host wasm
CARGO_TARGET_DIR=$(.ci/setup.sh target-dir)
export CARGO_TARGET_DIR
cargo build --workspace --bins
exec "$CARGO_TARGET_DIR/debug/campaign" "$@"
