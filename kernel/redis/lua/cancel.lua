#!lua flags=allow-oom
-- cancel: ends a job that has not ended; the clock of a task's record begins to run
-- KEYS job, events, due, wake, states, unpublished, queue, redo, delayed, open, counting
-- ARGV step, error, ttl_s, group
-- returns {1, 'canceled', updated ms, task} | {0, status that stands, updated ms, task}; status `gone`: no record
-- Ttl_s is for a task's record that names none. A fetch job (task `fetch`) is kept until it is pruned.
-- An entry of the queue that is in no worker's hands goes with its job, and its place is free.
-- include listed
-- include freed
-- include whole
-- include tell
local E, id = KEYS[2], string.sub(KEYS[1], 5)
local h = redis.call('HMGET', KEYS[1], 'status', 'rev', 'updated_ts', 'task', 'ttl_s', 'flow', 'tenant', 'created_ts', 'entry')
if not h[1] and redis.call('EXISTS', KEYS[1]) == 0 then return {0, 'gone', 0, ''} end
local task = h[4] or 'fetch'
-- A word that is not known is no end.
if h[1] == 'done' or h[1] == 'partial' or h[1] == 'error' or h[1] == 'canceled' then
  return {0, h[1], whole(h[3]) or 0, task}
end
local t = redis.call('TIME')
local now = string.format('%d', t[1] * 1000 + math.floor(t[2] / 1000))
redis.call('HSET', KEYS[1], 'status', 'canceled', 'updated_ts', now, 'error', ARGV[2], 'rev', (whole(h[2]) or 1) + 1)
listed(KEYS[5], id, h[7], whole(h[8]), 'canceled')
redis.call('ZADD', KEYS[6], now, id)
tell(E, 'type', 'canceled', 'ts', now, 'step', ARGV[1], 'data', '{}')
local function vacate(entry)
  local Q = KEYS[7]
  local held = redis.pcall('XPENDING', Q, ARGV[4], entry, entry, 1)
  if held.err or held[1] and string.sub(held[1][2], 1, 1) ~= '_' then return end
  local found = redis.call('XRANGE', Q, entry, entry)[1]
  if not found then return end
  local f = {}
  for i = 1, #found[2], 2 do f[found[2][i]] = found[2][i + 1] end
  if f['job_id'] ~= id then return end
  redis.call('XACK', Q, ARGV[4], entry)
  redis.call('HDEL', KEYS[8], entry)
  redis.call('ZREM', KEYS[9], entry)
  freed(Q, KEYS[10], KEYS[11], {entry}, {f['ledger'] and f['task'] or ''})
end
if task == 'fetch' then
  redis.call('HSET', KEYS[1], 'fin', '')
else
  -- What others wrote may be no number of seconds.
  local ttl = tonumber(string.match(h[5] or '', '^%d%d?%d?%d?%d?%d?%d?$')) or 0
  if ttl == 0 then ttl = ARGV[3] end
  redis.call('EXPIRE', KEYS[1], ttl)
  redis.call('EXPIRE', KEYS[2], ttl)
  if h[9] and string.match(h[9], '^%d+%-%d+$') then vacate(h[9]) end
end
if h[6] then  -- it is an attempt at a step of a flow: an engine is to look at that run
  redis.call('ZADD', KEYS[3], now, string.match(h[6], '^%S*'))
  redis.pcall('XADD', KEYS[4], 'MAXLEN', 1, '*', 'f', '1')
end
return {1, 'canceled', tonumber(now), task}
