#!lua flags=allow-oom
-- acknowledge: takes entries out of the pending list, and with them what is kept of their attempts
-- KEYS lane, redo, delayed
-- ARGV group, each: entry
-- returns how many were pending
for i = 2, #ARGV, 1000 do
  local last = math.min(i + 999, #ARGV)
  -- Forgetting the attempts first is safe: what is acknowledged is settled.
  if redis.call('EXISTS', KEYS[2]) == 1 then redis.call('HDEL', KEYS[2], unpack(ARGV, i, last)) end
  if redis.call('EXISTS', KEYS[3]) == 1 then redis.call('ZREM', KEYS[3], unpack(ARGV, i, last)) end
end
local acknowledged = 0
for i = 2, #ARGV, 1000 do
  acknowledged = acknowledged + redis.call('XACK', KEYS[1], ARGV[1], unpack(ARGV, i, math.min(i + 999, #ARGV)))
end
return acknowledged
