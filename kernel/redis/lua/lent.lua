#!lua flags=allow-oom
-- lent: lists what a worker elsewhere holds of the queue, without the payloads
-- KEYS lane, lease, redo
-- ARGV group, holder, from, to, max, each: consumer
-- returns consumer, entry, deliveries, ms since then, attempts, crashes, job id, task of each; {-1} where the holder
--   has no lease
local L, G = KEYS[1], ARGV[1]
local t = redis.call('TIME')
local ends = redis.call('ZSCORE', KEYS[2], ARGV[2])
if not ends or tonumber(ends) < t[1] * 1000 + math.floor(t[2] / 1000) then return {-1} end
local out = {}
for i = 6, #ARGV do
  for _, x in ipairs(redis.call('XPENDING', L, G, ARGV[3], ARGV[4], ARGV[5], ARGV[i])) do
    local entry = redis.call('XRANGE', L, x[1], x[1])[1]
    if entry then
      local f = {}
      for j = 1, #entry[2], 2 do f[entry[2][j]] = entry[2][j + 1] end
      local attempts, crashes = string.match(redis.call('HGET', KEYS[3], x[1]) or '0:0', '(%d+):(%d+)')
      for _, part in ipairs({ARGV[i], x[1], x[4], x[3], tonumber(attempts), tonumber(crashes), f['job_id'] or '',
        f['task'] or ''}) do
        out[#out + 1] = part
      end
    end
  end
end
return out
