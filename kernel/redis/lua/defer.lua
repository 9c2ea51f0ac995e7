#!lua flags=allow-oom
-- defer: says in the events of a job that its work is put off without an attempt, at most once in a while
-- KEYS job, events
-- ARGV step, data, every_ms
-- returns 1 where the job waits | 0 where it has ended | -1 where there is no record
local J, E = KEYS[1], KEYS[2]
local h = redis.call('HMGET', J, 'status', 'deferred_ts')
local status = h[1]
if not status then return redis.call('EXISTS', J) == 1 and 1 or -1 end
if status == 'done' or status == 'error' or status == 'canceled' or status == 'partial' then return 0 end
-- A foreign gateway may have set the clock of both running: nothing expires under a job that waits.
redis.call('PERSIST', J)
redis.call('PERSIST', E)
local t = redis.call('TIME')
local now = t[1] * 1000 + math.floor(t[2] / 1000)
local last = tonumber(h[2])
if last and last <= now and now < last + tonumber(ARGV[3]) then return 1 end
redis.call('HSET', J, 'deferred_ts', string.format('%d', now))
-- Events under a foreign key of that name are lost; the work is not.
redis.pcall('XADD', E, '*', 'type', 'deferred', 'ts', string.format('%d', now), 'step', ARGV[1], 'data', ARGV[2])
return 1
