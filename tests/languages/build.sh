#!/usr/bin/env bash
# Makes NAME-python.wasm and NAME-javascript.wasm of each NAME.py and NAME.js: tests/languages/build.sh FOLDER. The tools must be there.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
repository=$(cd "$here/../.." && pwd)
out=$(realpath -m "$1")
mkdir -p "$out"
# With the modules of the examples in one folder, as an author has them.
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cp -r "$here"/*.py "$here"/*.js "$repository"/examples/word-count-python/lockgate "$repository"/examples/word-count-javascript/*.js "$work"
cd "$work"
for name in picky visits; do
    "$("$repository/.ci/setup.sh" componentize-py)" --quiet --wit-path "$repository/wit" --world stream-operator \
        componentize --stub-wasi --python-path . $name --output "$out/$name-python.wasm"
    "$("$repository/.ci/setup.sh" componentize-js)" $name.js --wit "$repository/wit" --world-name stream-operator \
        --disable stdio --disable random --disable clocks --disable http --disable fetch-event --out "$out/$name-javascript.wasm"
done
