#!lua
-- queue_once: adds an entry to the queue unless one was added under the same name since then; names live for keep_ms
-- KEYS queue, replays, open, outbox, noted, job
-- ARGV once, keep_ms, since_ms, counted, job_id, each: field, value
-- returns 1 added, 0 it had been added before. Counted is the task of an entry that counts as open, else empty
-- The record of a counted one is told its entry, and its note leaves the outbox.
local t = redis.call('TIME')
local now = t[1] * 1000 + math.floor(t[2] / 1000)
for _, old in ipairs(redis.call('ZRANGEBYSCORE', KEYS[2], '-inf', now - tonumber(ARGV[2]), 'LIMIT', 0, 100)) do
  redis.call('ZREM', KEYS[2], old)
end
local since = tonumber(ARGV[3])
local added = redis.call('ZSCORE', KEYS[2], ARGV[1])
local news = not added or tonumber(added) < since
if news then
  -- Never before `since`, should the clock have gone back: the name must be found by the next call.
  redis.call('ZADD', KEYS[2], string.format('%d', math.max(now, since)), ARGV[1])
  local entry = redis.call('XADD', KEYS[1], '*', unpack(ARGV, 6))
  if ARGV[4] ~= '' then
    redis.call('HINCRBY', KEYS[3], ARGV[4], 1)
    if redis.call('EXISTS', KEYS[6]) == 1 then redis.call('HSET', KEYS[6], 'entry', entry) end
  end
end
if ARGV[4] ~= '' and redis.call('ZREM', KEYS[4], ARGV[4] .. '/' .. ARGV[5]) == 1
  and redis.call('HINCRBY', KEYS[5], ARGV[4], -1) <= 0 then
  redis.call('HDEL', KEYS[5], ARGV[4])
end
return news and 1 or 0
