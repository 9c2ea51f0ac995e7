#!lua flags=allow-oom
-- file_bye: ends the heartbeat of a worker of file jobs and forgets it where it holds nothing any more
-- KEYS heartbeat, workers, processing, solo, batch
-- ARGV worker
-- returns how many jobs are left to the reaper
local left = redis.call('LLEN', KEYS[3]) + redis.call('LLEN', KEYS[4])
redis.call('DEL', KEYS[1], KEYS[5])
-- What is left belongs to a worker that is known to be gone: nobody need wait for it.
if left > 0 then redis.call('ZADD', KEYS[2], 0, ARGV[1]) else redis.call('ZREM', KEYS[2], ARGV[1]) end
return left
