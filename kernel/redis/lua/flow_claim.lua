#!lua flags=allow-oom
-- flow_claim: takes runs that are due, each until its lease ends
-- KEYS due, held
-- ARGV max, lease_ms
-- returns {now ms, when the next one is due in ms or -1, lease, then the runs}
-- One engine at a time has a run. One that is signalled meanwhile is due at the end of that lease at the latest; the
-- engine that has it looks again when it has done. A lease ends with a fraction, which no signal has, made of the
-- microsecond, which no other claim has. Permitted when memory is short: accepted runs go on.
local t = redis.call('TIME')
local now = t[1] * 1000 + math.floor(t[2] / 1000)
-- Multiples of 1/1024 are exact in doubles of this size.
local lease = string.format('%.10f', now + tonumber(ARGV[2]) + (t[2] % 1000 + 1) / 1024)
local out = {now, -1, lease}
for _, run in ipairs(redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', now, 'LIMIT', 0, ARGV[1])) do
  local holds = tonumber(redis.call('HGET', KEYS[2], run) or 0)
  if holds > now then
    redis.call('ZADD', KEYS[1], string.format('%d', math.floor(holds) + 1), run)
  else
    redis.call('ZADD', KEYS[1], lease, run)
    redis.call('HSET', KEYS[2], run, lease)
    out[#out + 1] = run
  end
end
local after = redis.call('ZRANGE', KEYS[1], 0, 0, 'WITHSCORES')
if after[2] then out[2] = math.floor(tonumber(after[2])) end
return out
