#!lua
-- outbox: notes that a job is being accepted, so that the sweep finishes it whatever happens next
-- KEYS outbox
-- ARGV job_id
-- returns 1 noted, 0 it was there
local t = redis.call('TIME')
return redis.call('ZADD', KEYS[1], 'NX', string.format('%d', t[1] * 1000 + math.floor(t[2] / 1000)), ARGV[1])
