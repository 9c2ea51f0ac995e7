#!lua flags=allow-oom
-- suspect: takes one entry that may have killed its processes, to be run alone under the consumer `{worker}.solo`
-- KEYS lane, lease, redo
-- ARGV group, worker
-- returns {entry, deliveries, attempts, crashes}; {} where there is none or another worker runs one; {-1} without a lease
local L, G, me = KEYS[1], ARGV[1], ARGV[2]
local t = redis.call('TIME')
local now = t[1] * 1000 + math.floor(t[2] / 1000)
local function alive(name)
  local ends = redis.call('ZSCORE', KEYS[2], name)
  return ends and tonumber(ends) >= now
end
if not alive(me) then return {-1} end
for _, c in ipairs(redis.call('XINFO', 'CONSUMERS', L, G)) do
  local f = {}
  for i = 1, #c, 2 do f[c[i]] = c[i + 1] end
  local worker = string.match(f['name'], '^(.*)%.solo$')
  if worker and worker ~= me and f['pending'] > 0 and alive(worker) then return {} end
end
local p = redis.call('XPENDING', L, G, '-', '+', 1, '_suspect')[1]
if not p then return {} end
local attempts, crashes = string.match(redis.call('HGET', KEYS[3], p[1]) or '0:0', '(%d+):(%d+)')
local entry = redis.call('XCLAIM', L, G, me .. '.solo', 0, p[1])[1]
if not entry then return {} end
return {entry, p[4] + 1, tonumber(attempts), tonumber(crashes)}
