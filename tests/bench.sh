#!/usr/bin/env bash
# Measures whole jobs, see host/benches/job: tests/bench.sh --help says what. `tests/bench.sh kafka` measures Kafka to Kafka next to
# a plain loop, see tests/benches/kafka; tests/bench.sh kafka --help has its options.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
.ci/setup.sh host wasm
CARGO_TARGET_DIR=$(.ci/setup.sh target-dir)
export CARGO_TARGET_DIR
bench=job
if [ "${1-}" = kafka ]; then
    .ci/setup.sh kafka
    bench=kafka
fi
# The profile of everything else, so that nothing is built twice.
exec cargo bench --profile dev --workspace --bench "$bench" -- "$@"
