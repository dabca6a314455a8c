#!/usr/bin/env bash
# Makes split.wasm and count.wasm of split.c and count.c, two operators in C.
#
#   examples/word-count-c/build.sh            puts them beside their sources
#   examples/word-count-c/build.sh FOLDER     puts them there
#
# clang with a C library for Wasm is installed first, and wit-bindgen, which makes C of wit/operator.wit, if they aren't there.
# clang links a core module; `lockgate build` makes a component of it, and checks it. The `lockgate` of LOCKGATE_BIN is taken, else
# the one in PATH, else the one that was built of this repository.
#
# lockgate.h with lockgate.c and state.c is what an operator of your own needs, too.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
repository=$(cd "$here/../.." && pwd)
out=$(realpath -m "${1:-$here}")
"$repository/.ci/setup.sh" c
clang=$("$repository/.ci/setup.sh" clang)
wit_bindgen=$("$repository/.ci/setup.sh" wit-bindgen)
lockgate=${LOCKGATE_BIN:-$(command -v lockgate || echo "$("$repository/.ci/setup.sh" target-dir)/debug/lockgate")}
if ! [ -x "$lockgate" ]; then
    echo "error: there is no lockgate at $lockgate" >&2
    echo "help: build it with: cargo build --workspace --bin lockgate" >&2
    exit 1
fi
mkdir -p "$out"

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
"$wit_bindgen" c "$repository/wit" --world stream-operator --out-dir "$work" >/dev/null
for operator in split count; do
    # The object file says in the module for which world it is. 64 KiB of stack lie below everything else, so that an overflow traps.
    "$clang" --target=wasm32-wasi -mexec-model=reactor -O2 -std=c11 -Wall -Wextra -I "$here" -I "$work" \
        -Wl,--strip-debug -Wl,--stack-first "$here/$operator.c" "$here/lockgate.c" "$here/state.c" \
        "$work/stream_operator.c" "$work/stream_operator_component_type.o" -o "$work/$operator.core.wasm"
    "$lockgate" build "$work/$operator.core.wasm" --out "$out/$operator.wasm" >/dev/null
    echo "built $out/$operator.wasm"
done
