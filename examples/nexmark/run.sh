#!/usr/bin/env bash
# Builds the operators of a NEXMark query and runs it: examples/nexmark/run.sh q5. The output is in examples/nexmark/output.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
job=${1:-q5}.toml
[ -f "$job" ] || { printf 'error: there is no query %s\nhelp: name one of: %s\n' "${1:-}" "$(echo q*.toml)" >&2; exit 2; }
sed -n 's/^wasm = "\(.*\)\.wasm"$/\1/p' "$job" | while read -r operator; do
    lockgate build . --features "$operator" --out "$operator.wasm" </dev/null
done
exec lockgate run "$job"
