#!lua flags=allow-oom
-- flow_claim: takes runs that are due, each until its lease ends
-- KEYS due
-- ARGV max, lease_ms
-- returns {now ms, when the next one is due in ms or -1, lease, then the runs}
-- A run whose lease ends is due again, whatever became of its engine. A lease is a score with a fraction, which no
-- signal has, made of the microsecond, which no other claim has. Permitted when memory is short: accepted runs go on.
local t = redis.call('TIME')
local now = t[1] * 1000 + math.floor(t[2] / 1000)
-- Multiples of 1/1024 are exact in doubles of this size.
local lease = string.format('%.10f', now + tonumber(ARGV[2]) + (t[2] % 1000 + 1) / 1024)
local out = {now, -1, lease}
for _, run in ipairs(redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', now, 'LIMIT', 0, ARGV[1])) do
  redis.call('ZADD', KEYS[1], lease, run)
  out[#out + 1] = run
end
local after = redis.call('ZRANGE', KEYS[1], 0, 0, 'WITHSCORES')
if after[2] then out[2] = math.floor(tonumber(after[2])) end
return out
