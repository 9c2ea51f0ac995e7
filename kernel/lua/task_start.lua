#!lua flags=allow-oom
-- task_start: begins an attempt at a task job, under a fence that no earlier attempt passes
-- KEYS job, events
-- ARGV worker, step, delivery, token, attempt, again
-- returns {token to run with, now ms, created ms, ttl_s, tenant, trace_id, revision} | {0, updated ms, created ms,
--   ttl_s, tenant, trace_id, revision, status, error} where the job has ended, or a replay has overtaken the entry |
--   {-1} where there is no record
-- attempt is 0 where the work is not to begin: it is only to be ended.
-- again is 1 where the reply of the same call may have been lost: the attempt that it began goes on.
local J, E = KEYS[1], KEYS[2]
local h = redis.call('HMGET', J, 'status', 'fence', 'worker', 'delivery', 'created_ts', 'ttl_s', 'tenant', 'trace_id',
  'rev', 'updated_ts', 'error')
local status = h[1]
if not status then return {-1} end
-- What others wrote may be no number of seconds.
local rev, created = tonumber(h[9]) or 1, tonumber(string.match(h[5] or '', '^%d+$')) or 0
local ttl = tonumber(string.match(h[6] or '', '^%d%d?%d?%d?%d?%d?%d?$')) or 0
local overtaken = math.floor(tonumber(ARGV[4]) / 1048576) < math.floor(tonumber(h[2] or 0) / 1048576)
if overtaken or status ~= 'queued' and status ~= 'running' then
  return {0, tonumber(h[10]) or 0, created, ttl, h[7] or '', h[8] or '', rev, status, h[11] or ''}
end
local t = redis.call('TIME')
local now = string.format('%d', t[1] * 1000 + math.floor(t[2] / 1000))
-- The first attempt's token is 1, and is not written down; a fence that is there is that of the latest attempt.
local fence, token = tonumber(h[2] or 0), tonumber(ARGV[4])
if fence == 0 and status == 'running' then fence = 1 end
if ARGV[6] == '1' and fence > 0 and h[3] == ARGV[1] and h[4] == ARGV[3] then
  return {fence, tonumber(now), created, ttl, h[7] or '', h[8] or '', rev}
end
if token <= fence then token = fence + 1 end
rev = rev + 1
redis.call('HSET', J, 'status', 'running', 'updated_ts', now, 'worker', ARGV[1], 'delivery', ARGV[3], 'rev', rev)
if token ~= 1 then redis.call('HSET', J, 'fence', string.format('%d', token)) end
if ARGV[5] ~= '0' then
  redis.call('XADD', E, '*', 'type', 'running', 'ts', now, 'step', ARGV[2], 'data', '{"attempt":' .. ARGV[5] .. '}')
end
-- A foreign gateway may have set the clock of both running: nothing expires under a live job.
redis.call('PERSIST', J)
redis.call('PERSIST', E)
return {token, tonumber(now), created, ttl, h[7] or '', h[8] or '', rev}
