#!lua flags=allow-oom
-- finals: lists jobs whose finalization is due, and puts each off so that others leave it alone meanwhile
-- KEYS finals
-- ARGV max, again_ms
-- returns the job ids
local t = redis.call('TIME')
local now = t[1] * 1000 + math.floor(t[2] / 1000)
local due = redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', now, 'LIMIT', 0, ARGV[1])
for _, id in ipairs(due) do redis.call('ZADD', KEYS[1], string.format('%d', now + tonumber(ARGV[2])), id) end
return due
