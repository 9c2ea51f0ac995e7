#!lua flags=allow-oom
-- task_accept: makes an admitted task job in one step: record, first event, kept answer, indexes, entry on the queue
-- KEYS job, events, queue, outbox, open, noted, jobs, expiring, states, submit
-- ARGV task, job_id, payload, traceparent, flow, step, admitted_ms, ttl_s, fresh_ms, answer, tenant, each: field, value
-- returns {1 made | 0 it was there | -1 not made: it was made before, or that cannot be told any more, created ms}
-- Whoever sees the record finds the entry, and what the idempotency key stands for. Submit is that key, answer what it
-- is to give; without one they are the job itself and empty. A creator may have stood still for any time. Once the sweep
-- has dropped its note, a job without a record was either never made, or has ended and its record has expired. The key
-- knows, as it has no answer before the record is made; without a key it is taken for new until fresh_ms after its
-- admission, -1 for ever. Permitted when memory is short: the admission is what is refused then.
-- include listed
local J, E, Q, task, id, at = KEYS[1], KEYS[2], KEYS[3], ARGV[1], ARGV[2], ARGV[7]
local member = task .. '/' .. id
local h = redis.call('HMGET', J, 'status', 'created_ts', 'entry')
local noted = redis.call('ZREM', KEYS[4], member) == 1
if noted and redis.call('HINCRBY', KEYS[6], task, -1) <= 0 then redis.call('HDEL', KEYS[6], task) end
local made = not h[1]

local mine, answered = false, false
if ARGV[10] ~= '' then
  -- A foreign gateway may have put something else under the key.
  local kept = redis.pcall('HMGET', KEYS[10], 'job_id', 'answer')
  mine = not kept.err and kept[1] == id
  answered = mine and kept[2]
end

if made then
  local fresh = tonumber(ARGV[9])
  local t = redis.call('TIME')
  local late = fresh >= 0 and t[1] * 1000 + math.floor(t[2] / 1000) - tonumber(at) >= fresh
  if answered or (late and not noted and not mine) then return {-1, 0} end
  redis.call('HSET', J, 'job_id', id, 'task', task, 'payload', ARGV[3], 'ttl_s', ARGV[8], 'result', '', 'error', '',
    'status', 'queued', 'created_ts', at, 'updated_ts', at, unpack(ARGV, 12))
  listed(KEYS[9], id, ARGV[11], at, 'queued')
  redis.call('XADD', E, '*', 'type', 'queued', 'ts', at, 'step', ARGV[6], 'data', '{}')
  -- A restored stream has a listpack of its exact size: 420 bytes in place of 4.3 KB.
  redis.call('RESTORE', E, 0, redis.call('DUMP', E), 'REPLACE')
end
local created = tonumber(h[2] or at) or 0
if mine and not answered then
  redis.call('HSET', KEYS[10], 'answer', ARGV[10])
  redis.call('HDEL', KEYS[10], 'until', 'by')
end
redis.call('ZADD', KEYS[7], 'NX', created, id)
redis.call('ZADD', KEYS[8], 'NX', string.format('%d', created + tonumber(ARGV[8]) * 1000), id)
-- A record that has a note and no entry is that of a version that made them one after the other.
if made or noted and not h[3] then
  local fields = {'job_id', id, 'task', task, 'payload', ARGV[3], 'ledger', '1'}
  local function add(name, value)
    if value ~= '' then
      fields[#fields + 1] = name
      fields[#fields + 1] = value
    end
  end
  add('flow', ARGV[5])
  add('traceparent', ARGV[4])
  redis.call('HSET', J, 'entry', redis.call('XADD', Q, '*', unpack(fields)))
  redis.call('HINCRBY', KEYS[5], task, 1)
end
return {made and 1 or 0, created}
