#!lua flags=allow-oom
-- task_replay: opens a failed task job again and raises its fence, so that no earlier run can settle it
-- KEYS job, events, outbox, noted, states, unpublished
-- ARGV task, job_id, expected_replay, max_replays, step, each: field, value
-- returns {outcome, number of the replay, created ms}; outcome: replayed | already_replayed (publish it again, that is
--   harmless) | not_failed | too_many_replays | canceled | gone. max_replays 0 waives the cap
-- It is noted in the outbox until its entry is added: the sweep adds it where the operator dies in between.
-- Fields and values make a record again whose time is over; without them it stays gone.
-- include listed
-- include whole
-- include tell
local J, E, id = KEYS[1], KEYS[2], string.sub(KEYS[1], 5)
local expected, cap = tonumber(ARGV[3]), tonumber(ARGV[4])
local t = redis.call('TIME')
local now = string.format('%d', t[1] * 1000 + math.floor(t[2] / 1000))
local h = redis.call('HMGET', J, 'status', 'replays', 'rev', 'created_ts')
local number, created, rev = whole(h[2]) or 0, whole(h[4]) or 0, (whole(h[3]) or 1) + 1
if not h[1] then
  if #ARGV < 6 then return {'gone', 0, 0} end
  number, created = expected, tonumber(now)
elseif h[1] == 'canceled' then
  return {'canceled', number, created}
elseif number > expected then
  return {'already_replayed', number, created}
elseif h[1] ~= 'error' then
  return {'not_failed', number, created}
end
if cap > 0 and number >= cap then return {'too_many_replays', number, created} end
number = number + 1
local fence = string.format('%d', number * 1048576)
if not h[1] then
  -- Readers of jobs.status apply only a higher revision: it begins above all that the job had in its earlier life.
  rev = fence
  redis.call('HSET', J, 'created_ts', now, unpack(ARGV, 6))
end
redis.call('HSET', J, 'status', 'queued', 'updated_ts', now, 'result', '', 'error', '', 'replays', number, 'fence', fence,
  'rev', rev)
listed(KEYS[5], id, redis.call('HGET', J, 'tenant'), created, 'queued')
redis.call('ZADD', KEYS[6], now, id)
-- What belongs to the last attempt must not be taken for the next one's.
redis.call('HDEL', J, 'worker', 'delivery', 'told', 'retried', 'entry')
if redis.call('ZADD', KEYS[3], 'NX', now, ARGV[1] .. '/' .. ARGV[2]) == 1 then
  redis.call('HINCRBY', KEYS[4], ARGV[1], 1)
end
tell(E, 'type', 'replayed', 'ts', now, 'step', ARGV[5], 'data', '{"replay":' .. number .. '}')
redis.call('PERSIST', J)
redis.call('PERSIST', E)
return {'replayed', number, created}
