#!lua flags=allow-oom
-- transfer: moves entries from one consumer to another, as long as the remote worker's lease holds
-- KEYS lane, lease
-- ARGV group, holder, from, to, each: entry
-- returns 1 it is `to`'s now | 0 it is neither's (any more), for each entry; {-1} where the holder has no lease
-- It costs neither a delivery nor a crash: a lent task is claimed once, by whom it is lent to. What an earlier run has
-- moved, whose reply was lost, counts as moved.
local ends = redis.call('ZSCORE', KEYS[2], ARGV[2])
local t = redis.call('TIME')
if not ends or tonumber(ends) < t[1] * 1000 + math.floor(t[2] / 1000) then return {-1} end
local moved = {}
for i = 5, #ARGV do
  local row = redis.call('XPENDING', KEYS[1], ARGV[1], ARGV[i], ARGV[i], 1)[1]
  local holder = row and row[2]
  if holder == ARGV[3] then redis.call('XCLAIM', KEYS[1], ARGV[1], ARGV[4], 0, ARGV[i], 'JUSTID') end
  moved[#moved + 1] = (holder == ARGV[3] or holder == ARGV[4]) and 1 or 0
end
return moved
