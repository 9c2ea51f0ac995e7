#!lua flags=allow-oom
-- file_beat: begins or renews the heartbeat of a worker of file jobs
-- KEYS heartbeat, workers
-- ARGV worker, ttl_ms, first, about
-- returns 1, or 0 where a renewal comes too late: the heartbeat had lapsed and others may have its jobs
if ARGV[3] == '0' and redis.call('EXISTS', KEYS[1]) == 0 then return 0 end
redis.call('SET', KEYS[1], ARGV[4], 'PX', ARGV[2])
local t = redis.call('TIME')
redis.call('ZADD', KEYS[2], string.format('%d', t[1] * 1000 + math.floor(t[2] / 1000)), ARGV[1])
return 1
