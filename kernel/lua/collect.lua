#!lua flags=allow-oom
-- collect: takes entries that were put aside for workers elsewhere
-- KEYS lane, lease, redo
-- ARGV group, worker, max, each: from
-- returns entry, deliveries, attempts, crashes of each; {-1} where the worker has no lease
local L, G, me = KEYS[1], ARGV[1], ARGV[2]
local t = redis.call('TIME')
local now = t[1] * 1000 + math.floor(t[2] / 1000)
local ends = redis.call('ZSCORE', KEYS[2], me)
if not ends or tonumber(ends) < now then return {-1} end
local left, out = tonumber(ARGV[3]), {}
for i = 4, #ARGV do
  if left <= 0 then break end
  for _, x in ipairs(redis.call('XPENDING', L, G, '-', '+', left, ARGV[i])) do
    local entry = redis.call('XCLAIM', L, G, me, 0, x[1])[1]
    if entry then
      local attempts, crashes = string.match(redis.call('HGET', KEYS[3], x[1]) or '0:0', '(%d+):(%d+)')
      out[#out + 1] = entry
      out[#out + 1] = x[4] + 1
      out[#out + 1] = tonumber(attempts)
      out[#out + 1] = tonumber(crashes)
      left = left - 1
    end
  end
end
return out
