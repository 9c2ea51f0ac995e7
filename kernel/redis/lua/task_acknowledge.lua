#!lua flags=allow-oom
-- task_acknowledge: takes settled entries off the queue, and out of what is counted as open
-- KEYS lane, redo, delayed, open, counting
-- ARGV group, each: entry, counted
-- returns how many there were. Counted is the task of an entry that its creation has counted, else empty
-- include freed
local removed = 0
for i = 2, #ARGV, 1000 do
  local entries, tasks = {}, {}
  for j = i, math.min(i + 999, #ARGV), 2 do
    entries[#entries + 1] = ARGV[j]
    tasks[#tasks + 1] = ARGV[j + 1]
  end
  redis.call('HDEL', KEYS[2], unpack(entries))
  redis.call('ZREM', KEYS[3], unpack(entries))
  redis.call('XACK', KEYS[1], ARGV[1], unpack(entries))
  removed = removed + freed(KEYS[1], KEYS[4], KEYS[5], entries, tasks)
end
return removed
