#!lua flags=allow-oom
-- task_accept: creates the record of an admitted task job and its first event, once
-- KEYS job, events
-- ARGV step, admitted_ms, each: field, value
-- returns {1 created | 0 existed, created ms, status}
-- Permitted when memory is short: the admission is what is refused then, and its entry may follow in any case.
local was = redis.call('HMGET', KEYS[1], 'status', 'created_ts')
if was[1] then return {0, tonumber(was[2]) or 0, was[1]} end
local at = ARGV[2]
redis.call('HSET', KEYS[1], 'status', 'queued', 'created_ts', at, 'updated_ts', at, unpack(ARGV, 3))
redis.call('XADD', KEYS[2], '*', 'type', 'queued', 'ts', at, 'step', ARGV[1], 'data', '{}')
-- A restored stream has a listpack of its exact size: 420 bytes in place of 4.3 KB.
redis.call('RESTORE', KEYS[2], 0, redis.call('DUMP', KEYS[2]), 'REPLACE')
return {1, tonumber(at), 'queued'}
