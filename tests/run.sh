#!/usr/bin/env bash
# Installs what is missing, then checks format and lints and runs every test of the repository once.
#
# The last line is `N passed, N failed`. Exit code 0 only if nothing failed and something passed.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

.ci/setup.sh host wasm lint
# Where no Java can be had, the tests that need a real Kafka say SKIPPED; where Debian's packages can, it is an error.
kafka=yes
.ci/setup.sh kafka || kafka=no
[ "$kafka" = yes ] || [ "${CI:-}" != true ] || ! command -v apt-get >/dev/null
# The same for the test of the daemon's requests, which needs a Python; the test itself says what is missing.
.ci/setup.sh schemathesis || [ "${CI:-}" != true ] || ! command -v apt-get >/dev/null
# Where the tools of a language can't be had, its tests say SKIPPED; where Debian's packages can, it is an error.
.ci/setup.sh languages || [ "${CI:-}" != true ] || ! command -v apt-get >/dev/null
CARGO_TARGET_DIR=$(.ci/setup.sh target-dir)
export CARGO_TARGET_DIR
mkdir -p "$CARGO_TARGET_DIR"

scratch=$(mktemp -d)
log=$scratch/log
clean_up() {
    [ ! -d "$scratch/broker" ] || tests/kafka/broker.sh stop "$scratch/broker" >/dev/null || true
    rm -rf "$scratch"
}
trap clean_up EXIT
passed=0
failed=0
ignored=0

# step WHAT COMMAND...: a check that passes or fails as a whole.
step() {
    local what=$1
    shift
    printf '== %s: %s\n' "$what" "$*"
    if "$@"; then
        passed=$((passed + 1))
    else
        failed=$((failed + 1))
        printf 'error: %s failed\n' "$what" >&2
    fi
}

# Adds up the results that cargo has printed, a line for each test program.
count_results() {
    local sums
    sums=$(awk '/^test result: / {
            for (i = 2; i <= NF; i++) {
                if ($i ~ /^passed/) passed += $(i - 1)
                if ($i ~ /^failed/) failed += $(i - 1)
                if ($i ~ /^ignored/) ignored += $(i - 1)
            }
        } END { print passed + 0, failed + 0, ignored + 0 }' "$log")
    read -r tests_passed tests_failed tests_ignored <<<"$sums"
}

if ! [ -d "$CARGO_TARGET_DIR/debug" ]; then
    echo "First build in $CARGO_TARGET_DIR: 30 to 50 minutes on two cores, most of it RocksDB and wasmtime. Later ones take seconds."
fi

step format cargo fmt --all --check
step build cargo build --workspace --all-targets
step lints cargo clippy --workspace --all-targets -- -D warnings

# One broker for all tests that do it no harm.
if [ "$kafka" = yes ] && [ -z "${LOCKGATE_TEST_KAFKA:-}" ]; then
    LOCKGATE_TEST_KAFKA=$(tests/kafka/broker.sh start "$scratch/broker")
    export LOCKGATE_TEST_KAFKA
fi

printf '== tests: cargo test --workspace --no-fail-fast\n'
cargo_failed=0
cargo test --workspace --no-fail-fast 2>&1 | tee "$log" || cargo_failed=1
count_results
passed=$((passed + tests_passed))
failed=$((failed + tests_failed))
ignored=$((ignored + tests_ignored))

if [ "$tests_passed" = 0 ]; then
    failed=$((failed + 1))
    echo "error: no test ran" >&2
elif [ "$cargo_failed" = 1 ] && [ "$tests_failed" = 0 ]; then
    # A program that did not compile, or died, has no result line.
    failed=$((failed + 1))
    echo "error: cargo test failed without naming a test; see above" >&2
fi
if [ "$ignored" != 0 ]; then
    failed=$((failed + 1))
    echo "error: $ignored tests are marked as ignored; none may be" >&2
fi
# Far above stands all that these tests printed.
if [ "$tests_failed" != 0 ]; then
    echo "== what failed, and where:"
    grep '^test .* \.\.\. FAILED$' "$log" || true
    grep -A 8 '^thread .* panicked at' "$log" | cut -c1-500 | head -n 100 || true
fi
# Tests print this where a machine cannot run a part of them.
if grep -q '^SKIPPED' "$log"; then
    echo "== parts that this machine cannot run:"
    grep '^SKIPPED' "$log" | sort -u
fi

echo "$passed passed, $failed failed"
[ "$failed" = 0 ]
