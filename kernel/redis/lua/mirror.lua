#!lua flags=allow-oom
-- mirror: applies a JobStatus of a job whose tasks or status come from others
-- KEYS job, events, due, wake, states, unpublished
-- ARGV step, status, completed, failed, total, revision, error, each: field, value
-- returns {1 changed | 2 as it was | 0 a job of ingest's, status, total, created ms, updated ms}
-- Counts only rise, a terminal state absorbs, and a revision (0 for none) is applied only above the recorded one.
-- Fields and values make a record where there is none. Jobs of ingest are never touched; of a direct producer's job
-- that our workers run only the total is taken.
-- include listed
local J, E, id = KEYS[1], KEYS[2], string.sub(KEYS[1], 5)
local t = redis.call('TIME')
local now = string.format('%d', t[1] * 1000 + math.floor(t[2] / 1000))
local said, total_said, revision = ARGV[2], tonumber(ARGV[5]), tonumber(ARGV[6])
local made = false
if redis.call('EXISTS', J) == 0 then
  redis.call('HSET', J, 'status', 'queued', 'direct', '1', 'created_ts', now, 'updated_ts', now,
    'resource_total', total_said, 'resource_completed', 0, 'resource_failed', 0, unpack(ARGV, 8))
  redis.call('XADD', E, '*', 'type', 'queued', 'ts', now, 'step', ARGV[1], 'data', '{}')
  redis.call('RESTORE', E, 0, redis.call('DUMP', E), 'REPLACE')
  made = true
end
local h = redis.call('HMGET', J, 'status', 'resource_completed', 'resource_failed', 'resource_total', 'direct', 'rev',
  'worker', 'created_ts', 'updated_ts', 'flow', 'tenant')
local status, ok, bad, total = h[1], tonumber(h[2] or 0), tonumber(h[3] or 0), tonumber(h[4] or 0)
local recorded = tonumber(h[6] or 0)
local function answer(changed, at) return {changed, status, total, tonumber(h[8]), tonumber(at)} end
if h[5] ~= '1' then return answer(0, h[9]) end
if status ~= 'queued' and status ~= 'running' then return answer(2, h[9]) end
if revision > 0 and revision <= recorded then return answer(2, h[9]) end
local news = {}
local function set(field, value)
  news[#news + 1] = field
  news[#news + 1] = value
end
if total == 0 and total_said > 0 then
  total = total_said
  set('resource_total', total)
end
local ty
if h[7] then  -- our workers run it and count for themselves
  if #news > 0 and ok + bad >= total then said = bad == 0 and 'done' or (ok == 0 and 'error' or 'partial') else said = status end
else
  local ok_said, bad_said = tonumber(ARGV[3]), tonumber(ARGV[4])
  if ok_said + bad_said > ok + bad then ty = 'progress' end
  if ok_said > ok then ok = ok_said; set('resource_completed', ok) end
  if bad_said > bad then bad = bad_said; set('resource_failed', bad) end
  if ARGV[7] ~= '' then set('error', ARGV[7]) end
  if revision > recorded then set('rev', revision) end
end
if said ~= status and said ~= 'queued' then
  if said == 'running' then ty = 'running' else ty = said == 'error' and 'error' or 'done' end
  status = said
  set('status', status)
end
if made or ty then listed(KEYS[5], id, h[11], h[8], status) end
-- Whoever told of the end told it there; what our workers counted is still to be published.
if h[7] and ty and status ~= 'running' then redis.call('ZADD', KEYS[6], now, id) end
if #news == 0 then return answer(made and 1 or 2, h[9]) end
redis.call('HSET', J, 'updated_ts', now, unpack(news))
if ty then
  redis.call('XADD', E, '*', 'type', ty, 'ts', now, 'step', ARGV[1], 'data',
    '{"resource_completed":' .. ok .. ',"resource_failed":' .. bad .. ',"resource_total":' .. total .. '}')
end
if h[10] and ty then  -- it is an attempt at a step of a flow: an engine is to look at that run
  redis.call('ZADD', KEYS[3], now, string.match(h[10], '^%S*'))
  redis.pcall('XADD', KEYS[4], 'MAXLEN', 1, '*', 'f', '1')
end
return answer(1, now)
