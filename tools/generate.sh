#!/usr/bin/env bash
# Generates the stubs and the descriptor set from proto/ into DIR/gen, offline.
set -euo pipefail
cd "$(dirname "$0")/.."
PATH="$PWD/.venv/bin:$PATH"
out=${1:?usage: tools/generate.sh DIR}
buf generate --output "$out" 2> >(grep -v '^Writing mypy to' >&2)
buf build proto --output "$out/gen/descriptors.pb" --as-file-descriptor-set --exclude-source-info
# Runs on the stubs that were just generated.
sources=$(mktemp)
trap 'rm -f "$sources"' EXIT
buf build proto --output "$sources#format=binpb" --as-file-descriptor-set
for describe in describe_api describe_config; do
  PYTHONPATH="$out/gen:$PWD" python "tools/$describe.py" "$sources" "$out/gen/fetchbox"
done
