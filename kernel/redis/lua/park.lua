#!lua flags=allow-oom
-- park: puts entries aside until their next attempt is due; they stay in the pending list, untouched
-- KEYS lane, redo, delayed
-- ARGV group, each: worker, entry, delay_ms, attempts, crashes
-- returns how many were parked; an entry that its worker no longer holds is left alone
local t = redis.call('TIME')
local now = t[1] * 1000 + math.floor(t[2] / 1000)
local parked = 0
for i = 2, #ARGV, 5 do
  local id = ARGV[i + 1]
  if #redis.call('XPENDING', KEYS[1], ARGV[1], id, id, 1, ARGV[i]) == 1 then
    redis.call('ZADD', KEYS[3], string.format('%d', now + tonumber(ARGV[i + 2])), id)
    redis.call('HSET', KEYS[2], id, ARGV[i + 3] .. ':' .. ARGV[i + 4])
    redis.call('XCLAIM', KEYS[1], ARGV[1], '_delayed', 0, id, 'JUSTID')
    parked = parked + 1
  end
end
return parked
