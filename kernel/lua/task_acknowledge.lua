#!lua flags=allow-oom
-- task_acknowledge: takes settled entries off the queue, and out of what is counted as open
-- KEYS lane, redo, delayed, open, counting
-- ARGV group, each: entry, counted
-- returns how many there were. Counted is the task of an entry that its creation has counted, else empty
-- include freed
local removed = 0
for i = 2, #ARGV, 2 do
  local id = ARGV[i]
  redis.call('HDEL', KEYS[2], id)
  redis.call('ZREM', KEYS[3], id)
  redis.call('XACK', KEYS[1], ARGV[1], id)
  removed = removed + freed(KEYS[1], KEYS[4], KEYS[5], id, ARGV[i + 1])
end
return removed
