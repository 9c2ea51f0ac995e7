#!lua flags=allow-oom
-- submit_forget: frees the key of a submit that was refused, so that nothing of it is kept
-- KEYS submit
-- ARGV job_id, by
-- returns 1, or 0 where the key holds another job, an answer, or another's lease by now
local h = redis.call('HMGET', KEYS[1], 'job_id', 'by', 'answer')
if h[1] ~= ARGV[1] or h[2] ~= ARGV[2] or h[3] then return 0 end
redis.call('DEL', KEYS[1])
return 1
