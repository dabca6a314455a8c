#!/usr/bin/env bash
# Makes split.wasm and count.wasm of split.js and count.js, two operators in JavaScript.
#
#   examples/word-count-javascript/build.sh            puts them beside their sources
#   examples/word-count-javascript/build.sh FOLDER     puts them there
#
# componentize-js is installed first, if it isn't there, beside the build directory (~/.cache/lockgate). It makes a component of a
# module and of a JavaScript engine: 12 MB, of which the host's first `check` or `run` makes machine code in about half a minute.
# All that would ask an operating system is disabled, for an operator sees nothing of one.
#
# lockgate.js is what an operator of your own needs, too, with the modules that it imports.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
repository=$(cd "$here/../.." && pwd)
out=$(realpath -m "${1:-$here}")
"$repository/.ci/setup.sh" javascript
componentize=$("$repository/.ci/setup.sh" componentize-js)
mkdir -p "$out"

cd "$here"
for operator in split count; do
    # Beside it first, so that a job finds the old one or the new one.
    fresh=$out/.$operator.$$.tmp
    "$componentize" "$operator.js" --wit "$repository/wit" --world-name stream-operator \
        --disable stdio --disable random --disable clocks --disable http --disable fetch-event --out "$fresh"
    mv "$fresh" "$out/$operator.wasm"
    echo "built $out/$operator.wasm"
done
