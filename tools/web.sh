#!/usr/bin/env bash
# Builds the operators' page from web/ into gateway/ui/, or checks its types and that what is committed is what it builds.
#
#   tools/web.sh build|check
set -euo pipefail
cd "$(dirname "$0")/../web"
task=${1:?usage: tools/web.sh build|check}

if ! command -v npm > /dev/null; then
    echo "npm is not here: tests/gateway/test_desk.py alone says whether gateway/ui/ is that of web/" >&2
    [ "$task" = check ] && exit 0
    exit 1
fi
if ! cmp -s package-lock.json node_modules/.built-from; then
    # esbuild comes as a package a platform, so no package's script has to run.
    npm ci --silent --ignore-scripts --no-audit --no-fund
    cp package-lock.json node_modules/.built-from
fi
npm run --silent check
if [ "$task" = build ]; then
    npm run --silent build
    exit
fi
fresh=$(mktemp -d)
trap 'rm -rf "$fresh"' EXIT
node build.mjs "$fresh"
diff --recursive ../gateway/ui "$fresh" || {
    echo "gateway/ui/ is stale: run 'make web' and commit it" >&2
    exit 1
}
