#!lua flags=allow-oom
-- task_count: counts the open entries of the queue anew where somebody else has deleted or cut some
-- KEYS queue, open, counting
-- ARGV max
-- returns 1 where there is more to count, 0 where the counts are right
-- What was ever added, less what is there and what was taken off by `freed`, changes with every deletion by others. A
-- count looks at max entries at a time, the oldest first: those added meanwhile it finds later, and `freed` takes off
-- what it has counted. Nothing waits for it, and what is counted as open changes once, at its end.
local Q, O, C = KEYS[1], KEYS[2], KEYS[3]
local info = redis.pcall('XINFO', 'STREAM', Q)
if info.err then
  redis.call('DEL', O, C)
  return 0
end
local f = {}
for i = 1, #info, 2 do f[info[i]] = info[i + 1] end
local h = redis.call('HMGET', C, 'removed', 'drift', 'at')
local drift = string.format('%d', f['entries-added'] - f['length'] - tonumber(h[1] or 0))
if not h[3] or h[2] ~= drift then
  local open = 0
  for _, count in ipairs(redis.call('HVALS', O)) do open = open + (tonumber(count) or 0) end
  if h[2] == drift and open <= f['length'] then return 0 end
  redis.call('DEL', C)
  redis.call('HSET', C, 'removed', h[1] or 0, 'drift', drift, 'at', '0-0')
  h[3] = '0-0'
end
local entries = redis.call('XRANGE', Q, '(' .. h[3], '+', 'COUNT', ARGV[1])
for _, entry in ipairs(entries) do
  local e = {}
  for i = 1, #entry[2], 2 do e[entry[2][i]] = entry[2][i + 1] end
  if e['ledger'] and e['task'] then redis.call('HINCRBY', C, 'n:' .. e['task'], 1) end
end
if #entries == tonumber(ARGV[1]) then
  redis.call('HSET', C, 'at', entries[#entries][1])
  return 1
end
local counts = redis.call('HGETALL', C)
redis.call('DEL', O, C)
redis.call('HSET', C, 'removed', h[1] or 0, 'drift', drift)
for i = 1, #counts, 2 do
  local task = string.match(counts[i], '^n:(.*)$')
  if task and tonumber(counts[i + 1]) > 0 then redis.call('HSET', O, task, counts[i + 1]) end
end
return 0
