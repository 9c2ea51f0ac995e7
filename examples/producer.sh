#!/usr/bin/env bash
# A direct producer with nothing but bash: examples/producer.sh https://example.com/
# It writes the protobuf message and the Redis command byte by byte, so it shows how little a producer needs.
set -euo pipefail
export LC_ALL=C
host=${REDIS_ADDR:-127.0.0.1:6379}
port=${host##*:}
host=${host%:*}
partitions=8 # streams.tasks.partitions
url=${1:?a URL}
job="shell-$(date +%s)-$$"

byte() { printf "\\x$(printf %x "$1")"; }
varint() { # a number in base 128, low digits first
  local n=$1
  while ((n > 127)); do byte $((n % 128 + 128)); n=$((n / 128)); done
  byte "$n"
}
text() { byte $(($1 << 3 | 2)); varint ${#2}; printf %s "$2"; }   # field $1 of type string
number() { byte $(($1 << 3)); varint "$2"; }                      # field $1 of type uint32
task() { # DownloadTask of proto/fetchbox/jobs/jobs.proto
  text 1 "$job"      # job_id
  text 2 default     # job_type
  text 3 page        # resource_id
  text 4 "$url"      # url
  number 13 1        # resources_total
  number 14 1        # resource_index
}
crc32() { printf %s "$1" | gzip -c | tail -c 8 | od -An -tu4 -N4; } # gzip ends with the CRC-32 of its content

stream="fetchbox.jobs.tasks:$(($(crc32 "$job") % partitions))"
exec 3<>"/dev/tcp/$host/$port"
{
  printf '*5\r\n$4\r\nXADD\r\n$%d\r\n%s\r\n$1\r\n*\r\n$7\r\npayload\r\n' ${#stream} "$stream"
  printf '$%d\r\n' "$(task | wc -c)"
  task
  printf '\r\n'
} >&3
IFS= read -r -t 5 length <&3
[[ $length == '$'* ]] || { echo "Redis says: $length" >&2; exit 1; }
IFS= read -r -t 5 entry <&3
echo "$job ${entry%$'\r'}"
