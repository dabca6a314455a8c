#!/usr/bin/env bash
# Measures whole jobs, see host/benches/job: tests/bench.sh --help says what.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
.ci/setup.sh host wasm
CARGO_TARGET_DIR=$(.ci/setup.sh target-dir)
export CARGO_TARGET_DIR
# The profile of everything else, so that nothing is built twice.
exec cargo bench --profile dev --workspace --bench job -- "$@"
