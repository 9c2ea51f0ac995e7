#!lua flags=allow-oom
-- expire: lets the time of an ended record run where its worker has not
-- KEYS job, events
-- ARGV ttl_s
-- returns 1, or 0 where the job is open, its time runs already, or there is no record. Ttl_s is for a record that names none
local h = redis.call('HMGET', KEYS[1], 'status', 'ttl_s')
if not h[1] or h[1] == 'queued' or h[1] == 'running' or redis.call('PTTL', KEYS[1]) >= 0 then return 0 end
-- What others wrote may be no number of seconds.
local ttl = tonumber(string.match(h[2] or '', '^%d%d?%d?%d?%d?%d?%d?$')) or 0
if ttl == 0 then ttl = ARGV[1] end
redis.call('EXPIRE', KEYS[1], ttl)
redis.call('EXPIRE', KEYS[2], ttl)
return 1
