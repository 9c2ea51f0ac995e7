#!/usr/bin/env bash
# Installs what the clients and examples in Node need, unless it is there, and builds the client: Node itself from Debian
# where this is root, the packages as the locks say.
set -euo pipefail
cd "$(dirname "$0")/.."
exec 9< tools/node.sh && flock 9 # tests may ask for it at the same time

if ! { command -v node && command -v npm; } > /dev/null; then
    if ! command -v apt-get > /dev/null || [ "$(id -u)" != 0 ]; then
        echo "there is no Node, and this is not root on Debian to install it: install Node 20 or newer with npm" >&2
        exit 1
    fi
    install() { DEBIAN_FRONTEND=noninteractive apt-get -q -o DPkg::Lock::Timeout=120 install --yes --no-install-recommends nodejs npm; }
    install >&2 || { apt-get -q update >&2 && install >&2; }
fi

node --eval 'const [major, minor] = process.versions.node.split("."); process.exit(major > 20 || (major == 20 && minor >= 3) ? 0 : 1)' || {
    echo "this is Node $(node --version); the client needs 20.3 or newer" >&2
    exit 1
}

for project in clients/typescript examples/node; do
    installed=$project/node_modules/.installed-lock.json
    if ! cmp --quiet "$project/package-lock.json" "$installed"; then
        npm --prefix "$project" ci --no-audit --no-fund --prefer-offline --ignore-scripts >&2
        cp "$project/package-lock.json" "$installed"
    fi
done

built=clients/typescript/dist/.built
if [ ! -e "$built" ] || [ -n "$(find clients/typescript/{src,tsconfig.json,package-lock.json} -newer "$built" -print -quit)" ]; then
    npm --prefix clients/typescript run --silent build >&2
    touch "$built"
fi
