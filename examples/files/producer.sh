#!/usr/bin/env bash
# A producer of file jobs with nothing but bash: REDIS_ADDR=127.0.0.1:6379 examples/files/producer.sh [--high] FILE...
# The worker must see the file under the same path, below one of its `worker.file_roots`.
set -euo pipefail
export LC_ALL=C # lengths are those of bytes
host=${REDIS_ADDR:-127.0.0.1:6379}
port=${host##*:}
host=${host%:*}
priority=low
[[ ${1:-} == --high ]] && priority=high && shift

json() { # a string of JSON; the names of files may hold anything but NUL
  local text=$1 code char
  text=${text//\\/\\\\}
  text=${text//\"/\\\"}
  for code in {1..31}; do
    printf -v char "\\x$(printf %x "$code")"
    printf -v code '\\u%04x' "$code"
    text=${text//"$char"/"$code"}
  done
  printf '"%s"' "$text"
}

exec 3<>"/dev/tcp/$host/$port"
for name; do
  id="shell-$(date +%s%N)-$$"
  path=$(cd -- "$(dirname -- "$name")" && pwd)/${name##*/}
  job=$(printf '{"id":"%s","filepath":%s,"filesize":%d,"priority":"%s","retries":0,"creation_time":"%s",%s}' \
    "$id" "$(json "$path")" "$(stat -c %s -- "$name")" "$priority" "$(date -u +%Y-%m-%dT%H:%M:%S.%NZ)" \
    '"trace_id":"","span_id":""')
  queue=jobqueue:${priority}_priority # worker.queues
  printf '*3\r\n$5\r\nLPUSH\r\n$%d\r\n%s\r\n$%d\r\n%s\r\n' ${#queue} "$queue" ${#job} "$job" >&3
  IFS= read -r -t 5 answer <&3
  [[ $answer == :* ]] || { echo "Redis says: $answer" >&2; exit 1; }
  echo "$id"
done
