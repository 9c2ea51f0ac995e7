#!lua flags=allow-oom
-- task_start: begins an attempt at a task job, under a fence that no earlier attempt passes
-- KEYS job, events, due, wake, states
-- ARGV worker, step, delivery, token, attempt, again, entry
-- returns {token to run with, now ms, created ms, ttl_s, tenant, trace_id, revision} | {0, updated ms, created ms,
--   ttl_s, tenant, trace_id, revision, status, error} where the job has ended, or a replay has overtaken the entry |
--   {-1} where there is no record
-- attempt is 0 where the work is not to begin: it is only to be ended.
-- entry is noted in the record: the audit looks whether it is still there.
-- again is 1 where the reply of the same call may have been lost: the attempt that it began goes on.
-- include listed
-- include whole
-- include tell
local J, E = KEYS[1], KEYS[2]
local h = redis.call('HMGET', J, 'status', 'fence', 'worker', 'delivery', 'created_ts', 'ttl_s', 'tenant', 'trace_id',
  'rev', 'updated_ts', 'error', 'task', 'flow', 'entry')
local status = h[1]
if not status and redis.call('EXISTS', J) == 0 then return {-1} end
if h[12] == 'fetch' then return redis.error_reply('ERR it is that of a manifest') end
local rev, created = whole(h[9]) or 1, whole(h[5]) or 0
local ttl = tonumber(string.match(h[6] or '', '^%d%d?%d?%d?%d?%d?%d?$')) or 0
-- The first attempt's token is 1, and is not written down; a fence that is there is that of the latest attempt.
local fence, token = whole(h[2]) or 0, tonumber(ARGV[4])
local overtaken = math.floor(token / 1048576) < math.floor(fence / 1048576)
-- A word that is not known is no end.
if overtaken or status == 'done' or status == 'error' or status == 'canceled' or status == 'partial' then
  return {0, whole(h[10]) or 0, created, ttl, h[7] or '', h[8] or '', rev, status or '', h[11] or ''}
end
local t = redis.call('TIME')
local now = string.format('%d', t[1] * 1000 + math.floor(t[2] / 1000))
if fence == 0 and status == 'running' then fence = 1 end
if ARGV[6] == '1' and fence > 0 and h[3] == ARGV[1] and h[4] == ARGV[3] then
  return {fence, tonumber(now), created, ttl, h[7] or '', h[8] or '', rev}
end
if token <= fence then token = fence + 1 end
rev = rev + 1
redis.call('HSET', J, 'status', 'running', 'updated_ts', now, 'worker', ARGV[1], 'delivery', ARGV[3], 'rev', rev)
if h[14] ~= ARGV[7] then redis.call('HSET', J, 'entry', ARGV[7]) end
listed(KEYS[5], string.sub(J, 5), h[7], created, 'running')
if token ~= 1 then redis.call('HSET', J, 'fence', string.format('%d', token)) end
if ARGV[5] ~= '0' then
  tell(E, 'type', 'running', 'ts', now, 'step', ARGV[2], 'data', '{"attempt":' .. ARGV[5] .. '}')
end
-- A foreign gateway, which notes no entry, may have set the clock of both running: nothing expires under a live job.
if not h[14] then
  redis.call('PERSIST', J)
  redis.call('PERSIST', E)
end
if h[13] then  -- it is an attempt at a step of a flow: an engine is to look at that run
  redis.call('ZADD', KEYS[3], now, string.match(h[13], '^%S*'))
  redis.pcall('XADD', KEYS[4], 'MAXLEN', 1, '*', 'f', '1')
end
return {token, tonumber(now), created, ttl, h[7] or '', h[8] or '', rev}
