#!lua flags=allow-oom
-- beat: begins or renews the lease of a worker in a lane
-- KEYS lease
-- ARGV worker, ttl_ms, first
-- returns 1, or 0 where a renewal comes too late: the lease had lapsed and others may have its tasks
local t = redis.call('TIME')
local now = t[1] * 1000 + math.floor(t[2] / 1000)
local ends = redis.call('ZSCORE', KEYS[1], ARGV[1])
if ARGV[3] == '0' and (not ends or tonumber(ends) < now) then return 0 end
redis.call('ZADD', KEYS[1], string.format('%d', now + tonumber(ARGV[2])), ARGV[1])
return 1
