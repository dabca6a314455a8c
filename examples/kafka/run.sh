#!/usr/bin/env bash
# Kafka -> two Wasm operators -> Kafka, exactly once: starts a Kafka broker of its own, fills a topic with text, counts the words
# into another topic, kills the job with SIGKILL in the middle, runs it again, and compares what a consumer sees with a count that
# knows nothing of Lockgate.
#
#   examples/kafka/run.sh              starts and stops the broker (Apache Kafka, plain processes, no containers)
#   examples/kafka/run.sh HOST:PORT    uses the broker there, and deletes the topics that it has made
#
# What it makes is in a temporary folder, which is gone afterwards.
set -euo pipefail

fail() {
    printf 'error: %s\nhelp: %s\n' "$1" "$2" >&2
    exit "${3:-1}"
}

case ${1:-} in
-h | --help)
    sed -n '2,9s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"
    exit
    ;;
esac
[ $# -le 1 ] || fail "more than one broker" "give one HOST:PORT, or nothing" 2
broker=${1:-}

cd "$(dirname "${BASH_SOURCE[0]}")/../.."
# How often the text is repeated: so many seconds does the job have, more or less.
repeat=${LOCKGATE_EXAMPLE_REPEAT:-150}
topics=(lockgate-lines lockgate-counts)
marker=lockgate-kafka-words-marker
folder=$(mktemp -d)
ours=0 created=0 job_pid=

say() { printf '\n\033[1m%s\033[0m\n' "$*"; }
[ -t 1 ] || say() { printf '\n%s\n' "$*"; }

# Shows a command, then runs it: what a reader would type.
run() {
    printf '$ %s\n' "$*"
    "$@"
}

kafka() { tests/kafka/broker.sh "$@"; }

clean_up() {
    local code=$?
    trap - EXIT
    if [ -n "$job_pid" ]; then kill -9 "$job_pid" 2>/dev/null || true; fi
    if [ $ours = 1 ]; then
        kafka stop "$folder/broker" || true
    elif [ $created = 1 ]; then
        for topic in "${topics[@]}" "$marker"; do
            kafka tool topics --bootstrap-server "$broker" --delete --if-exists --topic "$topic" || true
        done
    fi
    rm -rf "$folder"
    exit $code
}
trap clean_up EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

# Everything in the topic that a consumer of this isolation level sees now, partition by partition in order.
consume() {
    timeout 120 kcat -C -q -e -b "$broker" -t lockgate-counts -o beginning -X "isolation.level=$1" ||
        fail "cannot read the topic lockgate-counts" "its messages are above"
}

prepare() {
    say "1. Builds Lockgate and compiles two operators to Wasm"
    .ci/setup.sh host wasm kafka
    CARGO_TARGET_DIR=$(.ci/setup.sh target-dir)
    export CARGO_TARGET_DIR
    run cargo build --workspace --bin lockgate
    export PATH=$CARGO_TARGET_DIR/debug:$PATH
    for operator in split count; do
        run lockgate build "examples/$operator" --out "$folder/$operator.wasm"
    done
}

start_broker() {
    if [ -z "$broker" ]; then
        say "2. Starts a Kafka broker"
        ours=1
        printf '$ tests/kafka/broker.sh start %s\n' "$folder/broker"
        broker=$(kafka start "$folder/broker")
        echo "It is at $broker."
    else
        say "2. Uses the Kafka broker at $broker"
        # Topics that are there already are somebody's.
        local there
        there=$(kafka tool topics --bootstrap-server "$broker" --list)
        for topic in "${topics[@]}" "$marker"; do
            ! grep -qxF "$topic" <<<"$there" || fail "the topic $topic is there already" "delete it, or use another broker"
        done
        created=1
    fi
}

fill_topic() {
    say "3. Makes two topics of 4 partitions, and fills one with text"
    for topic in "${topics[@]}"; do
        kafka tool topics --bootstrap-server "$broker" --create --topic "$topic" --partitions 4
    done
    # Words are of letters and digits only, so that everybody agrees on what one is.
    cat ./*.md LICENSE | tr 'A-Z' 'a-z' | tr -c 'a-z0-9\n' ' ' | grep '[a-z0-9]' >"$folder/text"
    for _ in $(seq "$repeat"); do cat "$folder/text"; done >"$folder/lines"
    kcat -P -b "$broker" -t lockgate-lines -X partitioner=murmur2_random <"$folder/lines"
    words=$(wc -w <"$folder/lines")
    echo "$(wc -l <"$folder/lines") records, $words words."
    sed "s/^brokers = .*/brokers = \"$broker\"/" examples/kafka/job.toml >"$folder/job.toml"
    run lockgate check "$folder/job.toml" --connect
}

kill_in_the_middle() {
    say "4. Runs the job, and kills it with SIGKILL as soon as the first counts can be seen"
    printf '$ lockgate run %s &\n' "$folder/job.toml"
    lockgate run "$folder/job.toml" 2>"$folder/first-run.log" &
    job_pid=$!
    # Ends with the first committed record.
    timeout 120 kcat -C -q -c 1 -b "$broker" -t lockgate-counts -o beginning -X isolation.level=read_committed >/dev/null &
    local watcher=$!
    wait -n "$job_pid" "$watcher" || true
    if ! kill -0 "$job_pid" 2>/dev/null || kill -0 "$watcher" 2>/dev/null; then
        kill "$watcher" 2>/dev/null || true
        cat "$folder/first-run.log" >&2
        fail "the job has ended before it could be killed" "what it said is above"
    fi
    wait "$watcher" || { cat "$folder/first-run.log" >&2; fail "no output after two minutes" "what the job said is above"; }
    printf '$ kill -9 %s\n' "$job_pid"
    kill -9 "$job_pid"
    wait "$job_pid" 2>/dev/null || true
    job_pid=
    local committed all
    committed=$(consume read_committed | wc -l)
    all=$(consume read_uncommitted | wc -l)
    echo "$committed of $words counts can be seen. $((all - committed)) more were sent, and belong to a transaction that was never"
    echo "committed: no consumer with read_committed will ever see them."
    [ "$committed" -lt "$words" ] ||
        fail "the job was over before it could be killed" "give it more to do: LOCKGATE_EXAMPLE_REPEAT=$((repeat * 4)) $0"
}

run_again() {
    say "5. Runs it again: it goes on from its last checkpoint, to the end"
    run lockgate run "$folder/job.toml"
}

# Each word with n occurrences must have the counts 1 to n, once each and in this order.
compare() {
    say "6. Compares what a read_committed consumer sees with a count of its own"
    tr -s ' ' '\n' <"$folder/lines" | awk 'NF { counts[$1]++ } END { for (word in counts) print word "\t" counts[word] }' |
        LC_ALL=C sort >"$folder/expected"
    printf '$ kcat -C -e -b %s -t lockgate-counts -X isolation.level=read_committed\n' "$broker"
    consume read_committed >"$folder/seen"
    awk -F '\t' '
        $2 != last[$1] + 1 && ++wrong <= 10 { printf "the count %d of \"%s\" comes after %d\n", $2, $1, last[$1] }
        { last[$1] = $2 }
        END { for (word in last) print word "\t" last[word] > totals; exit wrong > 0 }
    ' totals="$folder/unsorted" "$folder/seen" || fail "the output is not exactly once" "the first differences are above"
    LC_ALL=C sort "$folder/unsorted" >"$folder/totals"
    diff "$folder/expected" "$folder/totals" || fail "the counts are not those of the text" "the differences are above"
    echo "$(wc -l <"$folder/seen") counts of $(wc -l <"$folder/expected") words: each is there once, in order, and the totals are right."
    echo "The most frequent words:"
    sort -t "$(printf '\t')" -k 2,2nr "$folder/totals" | awk -F '\t' 'NR <= 5 { printf "%9d  %s\n", $2, $1 }'
}

prepare
start_broker
fill_topic
kill_in_the_middle
run_again
compare
