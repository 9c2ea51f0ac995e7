#!lua flags=allow-oom
-- final_end: ends a job whose finalization was this worker's; a canceled one only gets its results
-- KEYS job, events, bits, resources, results, due, wake, states, unpublished
-- ARGV worker, generation, step, results_key, error
-- returns {1, status, updated ms} this call ended it | {0, status that stands, updated ms}; status `fenced`: another holds it, `gone`: no record
-- include listed
local h = redis.call('HMGET', KEYS[1], 'status', 'fin', 'fin_gen', 'resource_completed', 'resource_failed',
  'resource_total', 'rev', 'updated_ts', 'flow', 'tenant', 'created_ts')
if not h[1] then return {0, 'gone', 0} end
if h[1] == 'canceled' then
  if ARGV[4] ~= '' then redis.call('HSET', KEYS[1], 'results', ARGV[4]) end
  redis.call('UNLINK', KEYS[5])
end
if h[1] ~= 'running' and h[1] ~= 'queued' then return {0, h[1], tonumber(h[8])} end
if h[2] ~= ARGV[1] or h[3] ~= ARGV[2] then return {0, 'fenced', tonumber(h[8])} end
local t = redis.call('TIME')
local now = string.format('%d', t[1] * 1000 + math.floor(t[2] / 1000))
local ok, bad = tonumber(h[4] or 0), tonumber(h[5] or 0)
local status = bad == 0 and 'done' or (ok == 0 and 'error' or 'partial')
if ARGV[5] ~= '' then status = 'error' end
redis.call('HSET', KEYS[1], 'status', status, 'updated_ts', now, 'fin', '', 'rev', tonumber(h[7] or 1) + 1)
listed(KEYS[8], string.sub(KEYS[1], 5), h[10], h[11], status)
redis.call('ZADD', KEYS[9], now, string.sub(KEYS[1], 5))
redis.call('HDEL', KEYS[1], 'fin_until')
if ARGV[4] ~= '' then redis.call('HSET', KEYS[1], 'results', ARGV[4]) end
if ARGV[5] ~= '' then redis.call('HSET', KEYS[1], 'error', ARGV[5]) end
redis.call('XADD', KEYS[2], '*', 'type', status == 'error' and 'error' or 'done', 'ts', now, 'step', ARGV[3], 'data',
  '{"resource_completed":' .. ok .. ',"resource_failed":' .. bad .. ',"resource_total":' .. (h[6] or '0') .. '}')
redis.call('UNLINK', KEYS[5])
if h[9] then  -- it is an attempt at a step of a flow: an engine is to look at that run
  redis.call('ZADD', KEYS[6], now, string.match(h[9], '^%S*'))
  redis.pcall('XADD', KEYS[7], 'MAXLEN', 1, '*', 'f', '1')
end
return {1, status, tonumber(now)}
