#!/usr/bin/env bash
# From nothing to the main job: installs what is missing, builds the host, compiles two operators to Wasm, and counts the
# words of real text, exactly once.
#
#   examples/quickstart.sh           counts the licence texts and copyright notes that every Debian machine has
#   examples/quickstart.sh PATH      counts the text file, or the text files of the folder, at PATH
#
# Everything it makes is in `quickstart` in the checkout, or in $LOCKGATE_QUICKSTART_DIR. Run it again: it continues from
# where it was.
set -euo pipefail

fail() {
    printf 'error: %s\nhelp: %s\n' "$1" "$2" >&2
    exit "${3:-1}"
}

[ $# -le 1 ] || fail "more than one path" "give one file or one folder" 2
case ${1:-} in
-h | --help)
    sed -n '2,8s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"
    exit
    ;;
esac
text=
if [ $# = 1 ]; then
    [ -r "$1" ] || fail "cannot read $1" "give a file or a folder that you may read" 2
    text=$(realpath "$1")
fi

cd "$(dirname "${BASH_SOURCE[0]}")/.."
repository=$PWD
folder=$(realpath -m "${LOCKGATE_QUICKSTART_DIR:-quickstart}")

# Shows a command, then runs it: what a reader would type.
run() {
    printf '\n\033[1m$ %s\033[0m\n' "$*"
    "$@"
}
[ -t 1 ] || run() {
    printf '\n$ %s\n' "$*"
    "$@"
}

build() {
    .ci/setup.sh host wasm
    CARGO_TARGET_DIR=$(.ci/setup.sh target-dir)
    export CARGO_TARGET_DIR
    lockgate=$CARGO_TARGET_DIR/debug/lockgate
    if ! [ -x "$lockgate" ]; then
        echo "First build in $CARGO_TARGET_DIR: 20 to 40 minutes on two cores, most of it RocksDB and wasmtime."
        echo "Later ones take seconds."
    fi
    run cargo build --workspace --bin lockgate
    export PATH=$CARGO_TARGET_DIR/debug:$PATH
    echo
    echo "The next commands are ordinary ones. To type them yourself:"
    echo "  cd $repository && export PATH=$CARGO_TARGET_DIR/debug:\$PATH"
}

# Copies real text into the input folder, once. What is added to the folder later stays.
collect_text() {
    if [ -d "$folder/input" ]; then return; fi
    local partial=$folder/input.partial
    rm -rf "$partial"
    mkdir -p "$partial"
    local path name
    for path in /usr/share/common-licenses/*; do
        if [ -f "$path" ]; then cp -L "$path" "$partial/license-$(basename "$path").txt"; fi
    done
    for path in /usr/share/doc/*/copyright; do
        if [ -f "$path" ]; then
            name=$(basename "$(dirname "$path")")
            cp -L "$path" "$partial/copyright-$name.txt"
        fi
    done
    # Not a Debian machine: this repository has text, too.
    find . -maxdepth 1 \( -name '*.md' -o -name LICENSE \) -exec cp {} "$partial/" \;
    mv "$partial" "$folder/input"
    echo
    echo "Copied $(find "$folder/input" -type f | wc -l) text files ($(du -sh "$folder/input" | cut -f 1)) to $folder/input"
}

# The job of examples/word-count, with the user's path where there is one.
write_job() {
    local job=$repository/examples/word-count/job.toml
    if [ -z "$text" ]; then
        cp "$job" "$folder/job.toml"
        return
    fi
    case $text in
    *[\'\\]* | *$'\n'*) fail "the path $text has a quote, a backslash or a line end" "rename it or link to it" 2 ;;
    esac
    awk -v path="$text" '$0 == "path = \"input\"" { print "path = '\''" path "'\''"; next } { print }' \
        "$job" >"$folder/job.toml"
}

# The lines of all part files so far; none before the first run.
count_lines() {
    if [ -d "$folder/output" ]; then
        find "$folder/output" -type f ! -name '.*' ! -path '*/.*' -exec cat {} + | wc -l
    else
        echo 0
    fi
}

show_result() {
    local before=$1 after
    after=$(count_lines)
    echo
    if [ "$after" = "$before" ]; then
        echo "Nothing new: all input had been counted before."
    else
        echo "$((after - before)) words counted."
    fi
    echo "The output is in $folder/output. The ten most frequent words:"
    find "$folder/output" -type f ! -name '.*' ! -path '*/.*' -exec cat {} + |
        awk -F '\t' '$2 > counts[$1] { counts[$1] = $2 } END { for (word in counts) printf "%9d  %s\n", counts[word], word }' |
        sort -rn | awk 'NR <= 10'
    echo
    echo "Run this again to see that nothing is counted twice; add a file to ${text:-$folder/input} to see it go on."
}

mkdir -p "$folder"
build
[ -n "$text" ] || collect_text
write_job
for operator in split count; do
    run lockgate build "examples/$operator" --out "$folder/$operator.wasm"
done
run lockgate check "$folder/job.toml"
before=$(count_lines)
run lockgate run "$folder/job.toml"
show_result "$before"
