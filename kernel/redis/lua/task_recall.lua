#!lua flags=allow-oom
-- task_recall: puts a task job back on the queue, from its record, where its entry is gone; ends what is noted of it
-- KEYS job, queue, outbox, open, noted, redo, delayed, lease, replays
-- ARGV task, job_id, group, longest_ms, swept
-- returns queued | dropped (the note: there is no record) | well (nothing is missing, or its worker is still at it)
-- The record names the entry. It is gone where somebody has deleted it or cut the stream, and where an operator who
-- opened the job again has died before the entry was added: that one has left a note, which counts once it is swept.
-- An attempt goes on without its entry while its worker has a lease, for longest_ms at most, and may end the job.
-- Attempts and crashes so far are those of the new entry. Permitted when memory is short: the job was accepted.
-- include whole
local J, Q, task, id = KEYS[1], KEYS[2], ARGV[1], ARGV[2]
local member = task .. '/' .. id
local h = redis.call('HMGET', J, 'status', 'entry', 'replays', 'flow', 'worker', 'updated_ts', 'retried', 'fence',
  'created_ts', 'task')
local noted = redis.call('ZSCORE', KEYS[3], member)
if noted and ARGV[5] ~= '1' then return 'well' end

local function drop_note()
  if redis.call('ZREM', KEYS[3], member) == 0 then return false end
  if redis.call('HINCRBY', KEYS[5], task, -1) <= 0 then redis.call('HDEL', KEYS[5], task) end
  return true
end

if not h[1] then return drop_note() and 'dropped' or 'well' end
local status, entry = h[1], h[2]
if (status ~= 'queued' and status ~= 'running') or h[10] ~= task
  or (entry and #redis.call('XRANGE', Q, entry, entry) > 0) then
  drop_note()
  return 'well'
end
-- Of what another gateway has made nobody knows the entry before it is started.
if not entry and not noted then return 'well' end
local t = redis.call('TIME')
local now = t[1] * 1000 + math.floor(t[2] / 1000)
local counts
if entry then
  local lease = h[5] and redis.call('ZSCORE', KEYS[8], h[5])
  if status == 'running' and h[7] ~= (h[8] or '1') and lease and tonumber(lease) >= now
    and now - (whole(h[6]) or 0) < tonumber(ARGV[4]) then
    return 'well'
  end
  counts = redis.call('HGET', KEYS[6], entry)
  redis.call('XACK', Q, ARGV[3], entry)
  redis.call('HDEL', KEYS[6], entry)
  redis.call('ZREM', KEYS[7], entry)
end
local fields = {'job_id', id, 'task', task, 'payload', redis.call('HGET', J, 'payload') or '', 'ledger', '1'}
if h[4] then
  fields[#fields + 1] = 'flow'
  fields[#fields + 1] = h[4]
end
local replay = whole(h[3]) or 0
if replay > 0 then
  fields[#fields + 1] = 'replay'
  fields[#fields + 1] = string.format('%d', replay)
  -- Whoever asks for this replay again adds no second entry.
  redis.call('ZADD', KEYS[9], string.format('%d', math.max(now, whole(h[9]) or 0)),
    id .. '//' .. string.format('%d', replay))
end
-- An entry that somebody has deleted is still counted as open, unless the counts were dropped since.
local length, counted = redis.call('XLEN', Q), 0
if length == 0 then redis.call('DEL', KEYS[4]) end
for _, count in ipairs(redis.call('HVALS', KEYS[4])) do counted = counted + (whole(count) or 0) end
if not entry or counted <= length then redis.call('HINCRBY', KEYS[4], task, 1) end
local added = redis.call('XADD', Q, '*', unpack(fields))
redis.call('HSET', J, 'entry', added)
if counts then redis.call('HSET', KEYS[6], added, counts) end
drop_note()
return 'queued'
