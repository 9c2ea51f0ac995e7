#!lua flags=allow-oom
-- start: turns a job to running and says of each task of a claimed batch whether it is to run
-- KEYS job, events, bits, resources, due, wake, states
-- ARGV worker, step, finalizes, create, each: index, resource_id, token
-- returns {now ms, about, then one verdict a task}; {'gone'} where the record is gone and must not be made again
-- create is the JSON of what a direct producer's record is made of: job_type, tenant, total, manifest_key, trace_id;
-- empty where none may be made. About is {status, fin, completed, failed, total, revision, updated ms, created ms,
-- log offset, error, direct}, or nil where that is of no use: every task is to run, and ingest knows the job.
-- A verdict is the token to run it with | 0 completed before | the error JSON it failed with | -1 a replay has
-- overtaken it | -2 its job has ended without it. A token is replay * 2^20 + deliveries.
-- include listed
local J, E, B, R = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local t = redis.call('TIME')
local now = string.format('%d', t[1] * 1000 + math.floor(t[2] / 1000))

local function create()
  local c = cjson.decode(ARGV[4])
  local total = c.total
  redis.call('HSET', J, 'job_id', string.sub(J, 5), 'task', 'fetch', 'status', 'queued', 'created_ts', now,
    'updated_ts', now, 'job_type', c.job_type, 'resource_total', total, 'resource_completed', 0, 'resource_failed', 0,
    'direct', '1')
  for _, name in ipairs({'tenant', 'manifest_key', 'trace_id'}) do
    if c[name] ~= '' then redis.call('HSET', J, name, c[name]) end
  end
  redis.call('XADD', E, '*', 'type', 'queued', 'ts', now, 'step', ARGV[2], 'data', '{}')
  redis.call('RESTORE', E, 0, redis.call('DUMP', E), 'REPLACE')
end

if redis.call('EXISTS', J) == 0 then
  if ARGV[4] == '' then return {'gone'} end
  create()
end
local h = redis.call('HMGET', J, 'status', 'fin', 'resource_completed', 'resource_failed', 'resource_total', 'rev',
  'updated_ts', 'created_ts', 'log_offset', 'error', 'direct', 'fence', 'worker', 'flow', 'tenant')
local status, rev, updated = h[1], tonumber(h[6] or 1), h[7]
local ok, bad, total = tonumber(h[3] or 0), tonumber(h[4] or 0), tonumber(h[5] or 0)
local ended = status ~= 'queued' and status ~= 'running'
if status == 'queued' or not ended and not h[13] then
  rev, updated = rev + 1, now
  redis.call('HSET', J, 'status', 'running', 'updated_ts', now, 'worker', ARGV[1], 'rev', rev)
  listed(KEYS[7], string.sub(J, 5), h[15], h[8], 'running')
  if total == 0 and ARGV[3] == '1' then redis.call('HSET', J, 'final', '1') end
  if status == 'queued' then redis.call('XADD', E, '*', 'type', 'running', 'ts', now, 'step', ARGV[2], 'data', '{}') end
  if h[14] then  -- it is an attempt at a step of a flow: an engine is to look at that run
    redis.call('ZADD', KEYS[5], now, string.match(h[14], '^%S*'))
    redis.pcall('XADD', KEYS[6], 'MAXLEN', 1, '*', 'f', '1')
  end
  status = 'running'
end
local out = {tonumber(now), false}
local all = true

local one = total == 1 and h[11] ~= '1'  -- a job of one resource needs no bitmap: its record says it all
local known = not one and redis.call('EXISTS', R) == 1
local function settled(index, id)
  if one then return ok + bad > 0 and (bad > 0 and h[10] or 0) end
  -- Nobody checked a direct producer's indexes: its resources are remembered by their ids, not in the bitmap.
  if index > 0 and h[11] ~= '1' and index <= total then
    return redis.call('GETBIT', B, index - 1) == 1 and (known and redis.call('HGET', R, 'x:' .. id) or 0)
  end
  local as = known and redis.call('HGET', R, 's:' .. id)
  return as and (as == 'f' and redis.call('HGET', R, 'x:' .. id) or 0)
end
for i = 5, #ARGV, 3 do
  local index, id, token = tonumber(ARGV[i]), ARGV[i + 1], tonumber(ARGV[i + 2])
  local fence = tonumber(one and h[12] or known and redis.call('HGET', R, 'f:' .. id) or 0)
  local verdict
  if math.floor(token / 1048576) < math.floor(fence / 1048576) then
    verdict = -1
  else
    verdict = settled(index, id)
    if not verdict then
      if ended then
        verdict = -2
      else
        -- A group that was lost and made again counts deliveries from one: tokens rise all the same.
        if fence > 0 and token <= fence then token = fence + 1 end
        if token ~= 1 then
          if one then
            redis.call('HSET', J, 'fence', string.format('%d', token))
            h[13] = token
          else
            redis.call('HSET', R, 'f:' .. id, string.format('%d', token))
            known = true
          end
        end
        verdict = token
      end
    end
  end
  out[#out + 1] = verdict
  all = all and type(verdict) == 'number' and verdict > 0
end
if not all or h[11] then
  out[2] = {status, h[2] or '', ok, bad, total, rev, tonumber(updated), tonumber(h[8]), h[9] or '', h[10] or '',
    h[11] or ''}
end
return out
