#!/usr/bin/env bash
# Measures whole jobs, see host/benches/job: tests/bench.sh --help says what. Others are named first:
#   tests/bench.sh kafka      Kafka to Kafka next to a plain loop, see tests/benches/kafka; `kafka --help` has its options
#   tests/bench.sh quotas     operators with limits next to the same without, in turn: the median of the ratios
#   tests/bench.sh upgrade    an upgrade under load: records a second before, during and after, and the pause
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
.ci/setup.sh host wasm
CARGO_TARGET_DIR=$(.ci/setup.sh target-dir)
export CARGO_TARGET_DIR
bench=job
case "${1-}" in
    kafka)
        .ci/setup.sh kafka
        bench=kafka
        ;;
    quotas)
        bench=plugin
        ;;
    upgrade)
        exec cargo test --workspace --test upgrade under_load -- --nocapture
        ;;
esac
# The profile of everything else, so that nothing is built twice.
exec cargo bench --profile dev --workspace --bench "$bench" -- "$@"
