#!lua flags=allow-oom
-- submit_finish: keeps the answer of a submit for every later one with its key
-- KEYS submit
-- ARGV job_id, answer
-- returns 1, or 0 where the key holds another job, or none, by now
if redis.call('HGET', KEYS[1], 'job_id') ~= ARGV[1] then return 0 end
redis.call('HSET', KEYS[1], 'answer', ARGV[2])
redis.call('HDEL', KEYS[1], 'until', 'by')
return 1
