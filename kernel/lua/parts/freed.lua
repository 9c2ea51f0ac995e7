-- Takes an entry off the queue and out of what is counted as open under `task`, '' for an entry that nobody counted.
-- Counting is what `task_count` knows: how many entries were taken off, and how far a new count has come.
local function before(a, b)
  local am, as = string.match(a, '(%d+)-(%d+)')
  local bm, bs = string.match(b, '(%d+)-(%d+)')
  am, bm = tonumber(am), tonumber(bm)
  return am < bm or (am == bm and tonumber(as) <= tonumber(bs))
end
local function freed(queue, open, counting, entry, task)
  if redis.call('XDEL', queue, entry) == 0 then return 0 end
  local at = redis.call('HGET', counting, 'at')
  redis.call('HINCRBY', counting, 'removed', 1)
  if task ~= '' then
    if redis.call('HINCRBY', open, task, -1) <= 0 then redis.call('HDEL', open, task) end
    if at and before(entry, at) then redis.call('HINCRBY', counting, 'n:' .. task, -1) end
  end
  return 1
end
