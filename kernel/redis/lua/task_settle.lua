#!lua flags=allow-oom
-- task_settle: records the outcome of an attempt, and ends the job unless another attempt follows
-- KEYS job, events, due, wake, states
-- ARGV token, step, outcome, value, data, ttl_s, deferred_every_ms
-- returns {verdict, status, updated ms, created ms, revision, error}; {'gone'} where there is no record any more
-- An outcome is o (done; value is the result) | f (failed for good; value is the error) | r (another attempt follows) |
-- d (put off without an attempt; one event in deferred_every_ms says so). A job that is put off and has not failed in
-- an attempt is queued again; `put_off` is the token with which that was, should the reply be lost.
-- Data is that of the event; ttl_s is for a record that names none. A verdict is n (recorded now) | r, d (told) |
-- s (this attempt was recorded before) | x (fenced: a later attempt owns the job) | c (the job has ended without it).
-- Whoever sends an end has noted before that it is to be published, as `note` does for many.
-- include listed
-- include whole
-- include tell
local J, E = KEYS[1], KEYS[2]
local h = redis.call('HMGET', J, 'status', 'fence', 'ttl_s', 'created_ts', 'updated_ts', 'rev', 'error', 'retried', 'flow',
  'tenant', 'deferred_ts', 'put_off')
local status = h[1]
if not status then return {'gone'} end
local updated, created, rev = whole(h[5]) or 0, whole(h[4]) or 0, whole(h[6]) or 1
if (h[2] or '1') ~= ARGV[1] then return {'x', status, updated, created, rev, ''} end
if ARGV[3] == 'd' and status == 'queued' and h[12] == ARGV[1] then return {'d', status, updated, created, rev, ''} end
if status ~= 'running' then
  local verdict = (status == 'done' or status == 'error') and 's' or 'c'
  return {verdict, status, updated, created, rev, h[7] or ''}
end
local t = redis.call('TIME')
local now = string.format('%d', t[1] * 1000 + math.floor(t[2] / 1000))
if ARGV[3] == 'r' then
  if h[8] ~= ARGV[1] then
    redis.call('HSET', J, 'updated_ts', now, 'retried', ARGV[1])
    tell(E, 'type', 'retry', 'ts', now, 'step', ARGV[2], 'data', ARGV[5])
  end
  return {'r', status, tonumber(now), created, rev, ''}
end
if ARGV[3] == 'd' then
  local last = whole(h[11])
  if not last or last > tonumber(now) or last + tonumber(ARGV[7]) <= tonumber(now) then
    redis.call('HSET', J, 'updated_ts', now, 'deferred_ts', now)
    tell(E, 'type', 'deferred', 'ts', now, 'step', ARGV[2], 'data', ARGV[5])
  end
  local failed = whole(h[8])
  if not failed or math.floor(failed / 1048576) < math.floor(tonumber(ARGV[1]) / 1048576) then
    status, rev = 'queued', rev + 1
    redis.call('HSET', J, 'status', status, 'updated_ts', now, 'rev', rev, 'fence', ARGV[1], 'put_off', ARGV[1])
    listed(KEYS[5], string.sub(J, 5), h[10], created, status)
  end
  return {'d', status, tonumber(now), created, rev, ''}
end
local done = ARGV[3] == 'o'
status, rev = done and 'done' or 'error', rev + 1
redis.call('HSET', J, 'status', status, done and 'result' or 'error', ARGV[4], 'updated_ts', now, 'rev', rev)
tell(E, 'type', status, 'ts', now, 'step', ARGV[2], 'data', ARGV[5])
listed(KEYS[5], string.sub(J, 5), h[10], created, status)
-- What others wrote may be no number of seconds.
local ttl = tonumber(string.match(h[3] or '', '^%d%d?%d?%d?%d?%d?%d?$')) or 0
if ttl == 0 then ttl = ARGV[6] end
redis.call('EXPIRE', J, ttl)
redis.call('EXPIRE', E, ttl)
if h[9] then  -- it is an attempt at a step of a flow: an engine is to look at that run
  redis.call('ZADD', KEYS[3], now, string.match(h[9], '^%S*'))
  redis.pcall('XADD', KEYS[4], 'MAXLEN', 1, '*', 'f', '1')
end
return {'n', status, tonumber(now), created, rev, done and '' or ARGV[4]}
