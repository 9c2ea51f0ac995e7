#!lua flags=allow-oom
-- task_tidy: lists entries of the queue that were read and are in no worker's hands: with nobody at all, where a worker
-- that deletes nothing acknowledged them, or lying under one of these names
-- KEYS lane
-- ARGV group, after, max, each: name
-- returns {where to go on, or '' at the end, then entry, job id, task where its creation has counted it (else ''), 1
--   where it lies under a name of each}
local L, G = KEYS[1], ARGV[1]
if redis.call('EXISTS', L) == 0 then return {''} end
local lies = {}
for i = 4, #ARGV do lies[ARGV[i]] = true end
local last
for _, g in ipairs(redis.call('XINFO', 'GROUPS', L)) do
  local f = {}
  for i = 1, #g, 2 do f[g[i]] = g[i + 1] end
  if f['name'] == G then last = f['last-delivered-id'] end
end
if not last then return {''} end
local entries = redis.call('XRANGE', L, ARGV[2], last, 'COUNT', ARGV[3])
local out = {#entries == tonumber(ARGV[3]) and '(' .. entries[#entries][1] or ''}
for _, entry in ipairs(entries) do
  local pending = redis.call('XPENDING', L, G, entry[1], entry[1], 1)[1]
  if not pending or lies[pending[2]] then
    local f = {}
    for i = 1, #entry[2], 2 do f[entry[2][i]] = entry[2][i + 1] end
    out[#out + 1] = entry[1]
    out[#out + 1] = f['job_id'] or ''
    out[#out + 1] = f['ledger'] and f['task'] or ''
    out[#out + 1] = pending and '1' or ''
  end
end
return out
