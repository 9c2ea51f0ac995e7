-- Takes entries off the queue and out of what is counted as open: `tasks` says under which task each was counted, ''
-- for one that nobody counted. Returns how many were there. Counting is what `task_count` knows: how many entries were
-- taken off, and how far a new count has come.
local function before(a, b)
  local am, as = string.match(a, '(%d+)-(%d+)')
  local bm, bs = string.match(b, '(%d+)-(%d+)')
  am, bm = tonumber(am), tonumber(bm)
  return am < bm or (am == bm and tonumber(as) <= tonumber(bs))
end
local function freed(queue, open, counting, entries, tasks)
  local removed, of, counted = 0, {}, {}
  local at = redis.call('HGET', counting, 'at')
  for i, entry in ipairs(entries) do
    if redis.call('XDEL', queue, entry) == 1 then
      local task = tasks[i]
      removed = removed + 1
      if task ~= '' then
        of[task] = (of[task] or 0) + 1
        if at and before(entry, at) then counted[task] = (counted[task] or 0) + 1 end
      end
    end
  end
  if removed > 0 then redis.call('HINCRBY', counting, 'removed', removed) end
  for task, n in pairs(of) do
    if redis.call('HINCRBY', open, task, -n) <= 0 then redis.call('HDEL', open, task) end
  end
  for task, n in pairs(counted) do redis.call('HINCRBY', counting, 'n:' .. task, -n) end
  return removed
end
