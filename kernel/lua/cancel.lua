#!lua flags=allow-oom
-- cancel: ends a job that has not ended
-- KEYS job, events
-- ARGV step, error
-- returns {1, 'canceled', updated ms} | {0, status that stands, updated ms}; status `gone`: no record
local h = redis.call('HMGET', KEYS[1], 'status', 'rev', 'updated_ts')
if not h[1] then return {0, 'gone', 0} end
if h[1] ~= 'queued' and h[1] ~= 'running' then return {0, h[1], tonumber(h[3])} end
local t = redis.call('TIME')
local now = string.format('%d', t[1] * 1000 + math.floor(t[2] / 1000))
redis.call('HSET', KEYS[1], 'status', 'canceled', 'updated_ts', now, 'error', ARGV[2], 'fin', '', 'rev', tonumber(h[2] or 1) + 1)
redis.call('XADD', KEYS[2], '*', 'type', 'canceled', 'ts', now, 'step', ARGV[1], 'data', '{}')
return {1, 'canceled', tonumber(now)}
