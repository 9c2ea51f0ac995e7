#!/usr/bin/env bash
# Prints where promtool is: that of the machine, else that of Debian's package `prometheus`, unpacked (not installed)
# into a cache below the repository. Needs neither root nor systemd.
#
#   "$(tools/promtool.sh)" check metrics < metrics.txt
#
# PROMTOOL=/path names one that is to be used.
set -euo pipefail
cd "$(dirname "$0")/.."
cache=.cache/promtool

if [ -n "${PROMTOOL:-}" ]; then
    echo "$PROMTOOL"
    exit
fi
if command -v promtool; then
    exit
fi
found=$PWD/$cache/usr/bin/promtool
if [ -x "$found" ]; then
    echo "$found"
    exit
fi
if ! command -v apt-get > /dev/null; then
    echo "promtool is not here, and neither is apt-get to fetch it: install Prometheus, or set PROMTOOL" >&2
    exit 1
fi

mkdir -p "$cache"
exec 9> "$cache/lock"
flock 9
if [ -x "$found" ]; then # another has fetched it meanwhile
    echo "$found"
    exit
fi
work=$(mktemp -d "$PWD/$cache/fetch.XXXXXX")
trap 'rm -rf "$work"' EXIT
chmod 755 "$work" # apt drops its privileges

# Lists and archives of our own, so that a user who is not root can update them.
mkdir -p "$work/lists/partial" "$work/archives/partial"
own=(-o "Dir::State::Lists=$work/lists" -o "Dir::Cache=$work" -o "Dir::Cache::Archives=$work/archives"
    -o APT::Sandbox::User="$(id -un)" -o Debug::NoLocking=1)

fetch() { (cd "$work" && apt-get "$@" download prometheus) >&2; }
if ! fetch -q -o APT::Sandbox::User="$(id -un)" -o Debug::NoLocking=1; then
    apt-get -q "${own[@]}" update >&2
    fetch -q "${own[@]}"
fi
dpkg -x "$work"/prometheus_*.deb "$work/unpacked"
mkdir -p "$cache/usr/bin"
mv "$work/unpacked/usr/bin/promtool" "$cache/usr/bin/promtool"
echo "$found"
