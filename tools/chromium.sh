#!/usr/bin/env bash
# Prints where a Chromium is: $CHROMIUM, else that of the machine, else Debian's, which it installs where it is root.
#
#   "$(tools/chromium.sh)" --headless --screenshot page.html
set -euo pipefail

if [ -n "${CHROMIUM:-}" ]; then
    echo "$CHROMIUM"
    exit
fi
for name in chromium chromium-browser google-chrome; do
    if command -v "$name"; then
        exit
    fi
done
if ! command -v apt-get > /dev/null || [ "$(id -u)" != 0 ]; then
    echo "there is no Chromium, and this is not root on Debian to install it: install one, or set CHROMIUM" >&2
    exit 1
fi
lock=(-o DPkg::Lock::Timeout=120)
install() { DEBIAN_FRONTEND=noninteractive apt-get -q "${lock[@]}" install --yes --no-install-recommends chromium; }
install >&2 || { apt-get -q update >&2 && install >&2; }
command -v chromium
