#!lua
-- accept: creates the record of a job and its first event, once, and notes that its tasks are to be published
-- KEYS job, events, states, outbox
-- ARGV step, tenant, each: field, value
-- returns {1 created | 0 existed, created ms, status}
-- include listed
-- The note is there before, unless a sweep has taken the submit for abandoned: whoever makes a record leaves one.
local was = redis.call('HMGET', KEYS[1], 'status', 'created_ts')
if was[1] then return {0, tonumber(was[2]), was[1]} end
local t = redis.call('TIME')
local now = string.format('%d', t[1] * 1000 + math.floor(t[2] / 1000))
redis.call('HSET', KEYS[1], 'status', 'queued', 'created_ts', now, 'updated_ts', now, unpack(ARGV, 3))
local tenant = ARGV[2] ~= '' and ARGV[2]
if tenant then redis.call('HSET', KEYS[1], 'tenant', tenant) end
listed(KEYS[3], string.sub(KEYS[1], 5), tenant, now, 'queued')
redis.call('ZADD', KEYS[4], 'NX', now, string.sub(KEYS[1], 5))
redis.call('XADD', KEYS[2], '*', 'type', 'queued', 'ts', now, 'step', ARGV[1], 'data', '{}')
-- A restored stream has a listpack of its exact size: 420 bytes in place of 4.3 KB.
redis.call('RESTORE', KEYS[2], 0, redis.call('DUMP', KEYS[2]), 'REPLACE')
return {1, tonumber(now), 'queued'}
