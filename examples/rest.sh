#!/usr/bin/env bash
# Submits a manifest by REST and prints the events of its job: examples/rest.sh examples/manifest.json
set -euo pipefail
gateway="http://${FETCHBOX_GATEWAY:-127.0.0.1:8080}"
manifest=${1:?the path of a manifest}

# With an idempotency key, a submit whose answer was lost can be repeated without making a second job.
answer=$(curl -sS --fail-with-body "$gateway/jobs" \
  -H 'Content-Type: application/json' \
  -H 'X-Fetchbox-Job-Type: default' \
  -H "X-Fetchbox-Idempotency-Key: example-rest-$(cksum <"$manifest" | cut -d ' ' -f 1)" \
  --data-binary "@$manifest") || { echo "$answer" >&2; exit 1; }
echo "$answer"
job=$(sed -E 's/.*"job_id": *"([^"]+)".*/\1/' <<<"$answer")

# Server-Sent Events; a client that lost the connection goes on with the header `Last-Event-ID`.
curl -sS --no-buffer "$gateway/operators/jobs/$job/events" -H 'Accept: text/event-stream'
curl -sS -w '\n' "$gateway/operators/jobs/$job"
