#!lua flags=allow-oom
-- task_acknowledge: takes settled entries off the queue, and out of what is counted as open
-- KEYS lane, redo, delayed, open
-- ARGV group, each: entry, counted
-- returns how many there were. Counted is the task of an entry that its creation has counted, else empty
local removed = 0
for i = 2, #ARGV, 2 do
  local id, task = ARGV[i], ARGV[i + 1]
  redis.call('HDEL', KEYS[2], id)
  redis.call('ZREM', KEYS[3], id)
  redis.call('XACK', KEYS[1], ARGV[1], id)
  if redis.call('XDEL', KEYS[1], id) == 1 then
    removed = removed + 1
    if task ~= '' and redis.call('HINCRBY', KEYS[4], task, -1) <= 0 then redis.call('HDEL', KEYS[4], task) end
  end
end
return removed
