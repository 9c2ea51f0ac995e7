#!lua flags=allow-oom
-- collect: takes entries that were put aside
-- KEYS lane, lease, redo
-- ARGV group, worker, max, suspect, empty, each: from
-- returns entry, deliveries, attempts, crashes of each; {-1} where the worker has no lease; {-2} where the next one
--   must run alone and the worker that it is for holds others
-- An entry that has lost its process `suspect` times (-1: it does not matter how often) is taken alone, under the
-- consumer `{worker}.solo`, and only where empty is 1. Until that has happened, those behind it wait.
local L, G, me = KEYS[1], ARGV[1], ARGV[2]
local t = redis.call('TIME')
local now = t[1] * 1000 + math.floor(t[2] / 1000)
local ends = redis.call('ZSCORE', KEYS[2], me)
if not ends or tonumber(ends) < now then return {-1} end
local left, suspect, out = tonumber(ARGV[3]), tonumber(ARGV[4]), {}
for i = 6, #ARGV do
  if left <= 0 then break end
  for _, x in ipairs(redis.call('XPENDING', L, G, '-', '+', left, ARGV[i])) do
    local attempts, crashes = string.match(redis.call('HGET', KEYS[3], x[1]) or '0:0', '(%d+):(%d+)')
    local alone = suspect >= 0 and tonumber(crashes) >= suspect
    if alone and #out > 0 then return out end
    if alone and ARGV[5] ~= '1' then return {-2} end
    local entry = redis.call('XCLAIM', L, G, alone and me .. '.solo' or me, 0, x[1])[1]
    if entry then
      out[#out + 1] = entry
      out[#out + 1] = x[4] + 1
      out[#out + 1] = tonumber(attempts)
      out[#out + 1] = tonumber(crashes)
      if alone then return out end
      left = left - 1
    end
  end
end
return out
