#!lua flags=allow-oom
-- close: ends a job without a known total after it has had no news for a time
-- KEYS job, events, due, wake, states, unpublished
-- ARGV step, idle_ms, error
-- returns {state, status, updated ms}; state: closed | due (its finalization ends it) | news (not idle yet) | ended | total | gone
-- include listed
local h = redis.call('HMGET', KEYS[1], 'status', 'resource_total', 'resource_completed', 'resource_failed',
  'updated_ts', 'final', 'fin', 'rev', 'flow', 'tenant', 'created_ts')
if not h[1] then return {'gone', '', 0} end
if h[1] ~= 'queued' and h[1] ~= 'running' then return {'ended', h[1], tonumber(h[5])} end
if h[7] and h[7] ~= '' then return {'due', h[1], tonumber(h[5])} end
if h[2] and h[2] ~= '0' then return {'total', h[1], tonumber(h[5])} end
local t = redis.call('TIME')
local now = t[1] * 1000 + math.floor(t[2] / 1000)
if tonumber(h[5]) + tonumber(ARGV[2]) > now then return {'news', h[1], tonumber(h[5])} end
now = string.format('%d', now)
local ok, bad = tonumber(h[3] or 0), tonumber(h[4] or 0)
local total = string.format('%d', ok + bad)
local rev = tonumber(h[8] or 1) + 1
if h[6] == '1' and ok + bad > 0 then
  redis.call('HSET', KEYS[1], 'resource_total', total, 'fin', 'due', 'updated_ts', now, 'rev', rev)
  return {'due', h[1], tonumber(now)}
end
local status = ok == 0 and 'error' or (bad == 0 and 'done' or 'partial')
redis.call('HSET', KEYS[1], 'status', status, 'resource_total', total, 'updated_ts', now, 'rev', rev)
listed(KEYS[5], string.sub(KEYS[1], 5), h[10], h[11], status)
redis.call('ZADD', KEYS[6], now, string.sub(KEYS[1], 5))
if ok + bad == 0 then redis.call('HSET', KEYS[1], 'error', ARGV[3]) end
redis.call('XADD', KEYS[2], '*', 'type', status == 'error' and 'error' or 'done', 'ts', now, 'step', ARGV[1], 'data',
  '{"resource_completed":' .. ok .. ',"resource_failed":' .. bad .. ',"resource_total":' .. total .. '}')
if h[9] then  -- it is an attempt at a step of a flow: an engine is to look at that run
  redis.call('ZADD', KEYS[3], now, string.match(h[9], '^%S*'))
  redis.pcall('XADD', KEYS[4], 'MAXLEN', 1, '*', 'f', '1')
end
return {'closed', status, tonumber(now)}
