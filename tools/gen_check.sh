#!/usr/bin/env bash
# Fails, and shows the difference, when gen/ is not what proto/ generates.
set -euo pipefail
cd "$(dirname "$0")/.."
fresh=$(mktemp -d)
trap 'rm -rf "$fresh"' EXIT
tools/generate.sh "$fresh"
diff --recursive --exclude=__pycache__ gen "$fresh/gen" || {
  echo "gen/ is stale: run 'make gen' and commit it" >&2
  exit 1
}
