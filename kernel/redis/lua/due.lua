#!lua flags=allow-oom
-- due: takes the entries whose next attempt is due
-- KEYS lane, lease, redo, delayed
-- ARGV group, worker, max
-- returns {ms until the next is due, or -1 for none, then entry, deliveries, attempts, crashes of each}; {-2} without a lease
local L, G = KEYS[1], ARGV[1]
local t = redis.call('TIME')
local now = t[1] * 1000 + math.floor(t[2] / 1000)
local ends = redis.call('ZSCORE', KEYS[2], ARGV[2])
if not ends or tonumber(ends) < now then return {-2} end
local out = {-1}
for _, id in ipairs(redis.call('ZRANGEBYSCORE', KEYS[4], '-inf', now, 'LIMIT', 0, ARGV[3])) do
  local p = redis.call('XPENDING', L, G, id, id, 1, '_delayed')[1]
  local entry = p and redis.call('XCLAIM', L, G, ARGV[2], 0, id)[1]
  if entry then
    local attempts, crashes = string.match(redis.call('HGET', KEYS[3], id) or '0:0', '(%d+):(%d+)')
    out[#out + 1] = entry
    out[#out + 1] = p[4] + 1
    out[#out + 1] = tonumber(attempts)
    out[#out + 1] = tonumber(crashes)
  end
  redis.call('ZREM', KEYS[4], id)
end
local after = redis.call('ZRANGE', KEYS[4], 0, 0, 'WITHSCORES')
if after[2] then out[1] = math.max(0, tonumber(after[2]) - now) end
return out
