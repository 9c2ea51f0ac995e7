#!lua
-- flow_open: writes the order of a run, once, and has an engine look at it
-- KEYS flow, due, wake, names, tenants
-- ARGV run, name, tenant, digest, each: field, value
-- returns {1 made | 0 it was there, revision, digest}
-- The look is due at once: an engine finishes a start that died before its first event. Tenants are those that have a
-- run of this id.
local was = redis.call('HMGET', KEYS[1], 'rev', 'digest')
if was[1] then return {0, tonumber(was[1]), was[2] or ''} end
local t = redis.call('TIME')
redis.call('HSET', KEYS[1], 'rev', '0', 'name', ARGV[2], 'digest', ARGV[4])
if ARGV[3] ~= '' then redis.call('SADD', KEYS[5], ARGV[3]) end
for i = 5, #ARGV, 2 do redis.call('HSET', KEYS[1], ARGV[i], ARGV[i + 1]) end
redis.call('SADD', KEYS[4], ARGV[2])
redis.call('ZADD', KEYS[2], string.format('%d', t[1] * 1000 + math.floor(t[2] / 1000)), ARGV[1])
redis.pcall('XADD', KEYS[3], 'MAXLEN', 1, '*', 'flow', ARGV[1])
return {1, 0, ARGV[4]}
