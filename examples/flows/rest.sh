#!/usr/bin/env bash
# The flow by REST: starts a run, follows its events as Server-Sent Events, prints what it came to.
#   rest.sh [INPUT]      FETCHBOX_GATEWAY=127.0.0.1:8080
set -euo pipefail

gateway="http://${FETCHBOX_GATEWAY:-127.0.0.1:8080}"
input=${1:-$(dirname "$0")/input.json}

# The answer holds the secrets of the gates too: nobody is told them again, so keep it where nobody else looks.
answer=$(printf '{"flow": "catalogue", "input": %s}' "$(cat "$input")" | curl -sS --fail-with-body "$gateway/v1/flows" \
    -H 'Content-Type: application/json' -H "Idempotency-Key: rest-$(date +%s%N)" -d @-)
run=$(python3 -c 'import json, sys; print(json.load(sys.stdin)["flow"]["flowId"])' <<<"$answer")
echo "run $run"

# The stream ends with the run. After a lost connection `?cursor=ID` (or Last-Event-ID) goes on behind an event.
curl -sSN --fail-with-body "$gateway/v1/flows/$run/events" -H 'Accept: text/event-stream' | grep '^event: '

curl -sS --fail-with-body "$gateway/v1/flows/$run"
