#!/usr/bin/env bash
# Makes split.wasm and count.wasm of split.py and count.py, two operators in Python.
#
#   examples/word-count-python/build.sh            puts them beside their sources
#   examples/word-count-python/build.sh FOLDER     puts them there
#
# componentize-py is installed first, if it isn't there, beside the build directory (~/.cache/lockgate). It makes a component of a
# module and of a Python interpreter: 18 MB, of which the host's first `check` or `run` makes machine code in about half a minute.
# `--stub-wasi` leaves out the operating system, of which an operator sees nothing anyway.
#
# The folder `lockgate` is what an operator of your own needs, too.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
repository=$(cd "$here/../.." && pwd)
out=$(realpath -m "${1:-$here}")
"$repository/.ci/setup.sh" python
componentize=$("$repository/.ci/setup.sh" componentize-py)
mkdir -p "$out"

cd "$here"
for operator in split count; do
    # Beside it first, so that a job finds the old one or the new one.
    fresh=$out/.$operator.$$.tmp
    PYTHONDONTWRITEBYTECODE=1 "$componentize" --quiet --wit-path "$repository/wit" --world stream-operator \
        componentize --stub-wasi --python-path . "$operator" --output "$fresh"
    mv "$fresh" "$out/$operator.wasm"
    echo "built $out/$operator.wasm"
done
