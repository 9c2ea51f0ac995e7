#!lua flags=allow-oom
-- settle: records the outcomes of tasks of one job, ends the job with the last of them, and tells how things stand
-- KEYS job, events, bits, resources, results, due, wake, states, unpublished
-- ARGV finalizes, step, deferred_every_ms, each: index, resource_id, token, outcome, error, detail
-- returns {status, fin, completed, failed, total, revision, updated ms, created ms, log offset, error, direct,
--   then one verdict a task}; {'gone'} where there is no record any more
-- An outcome is o (completed) | f (failed for good) | r (another attempt follows; detail is its event's data) |
-- d (put off without an attempt, likewise; one event in deferred_every_ms says so). A job of one resource that is put
-- off and has not failed in an attempt is queued again; of more, others may be at work.
-- A verdict is n (recorded now) | r, d (told) | s (completed before) | the error JSON it failed with before | x (fenced:
-- a later claim owns it) | c (the job has ended without it).
-- include listed
local J, E, B, R, D = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local h = redis.call('HMGET', J, 'status', 'fin', 'resource_completed', 'resource_failed', 'resource_total', 'rev',
  'updated_ts', 'created_ts', 'log_offset', 'error', 'direct', 'fence', 'flow', 'tenant', 'deferred_ts', 'retried')
local status, fin = h[1], h[2] or ''
if not status then return {'gone'} end
local ok, bad, total = tonumber(h[3] or 0), tonumber(h[4] or 0), tonumber(h[5] or 0)
local rev, updated = tonumber(h[6] or 1), h[7]
local t = redis.call('TIME')
local now = string.format('%d', t[1] * 1000 + math.floor(t[2] / 1000))
local before, err = ok + bad, h[10] or ''
local ended = status ~= 'queued' and status ~= 'running'
local one = total == 1 and h[11] ~= '1'
local known = not one and redis.call('EXISTS', R) == 1
local retries = false
local verdicts = {}

local function bitmapped(index) return index > 0 and h[11] ~= '1' and index <= total end

local function settled(index, id)
  if one then return ok + bad > 0 and (bad > 0 and err or 's') end
  if bitmapped(index) then
    return redis.call('GETBIT', B, index - 1) == 1 and (known and redis.call('HGET', R, 'x:' .. id) or 's')
  end
  local as = known and redis.call('HGET', R, 's:' .. id)
  return as and (as == 'f' and redis.call('HGET', R, 'x:' .. id) or 's')
end

local function record(index, id, outcome, failure, detail)
  if not one then
    if bitmapped(index) then
      redis.call('SETBIT', B, index - 1, 1)
    else
      redis.call('HSET', R, 's:' .. id, outcome)
      known = true
    end
  end
  if outcome == 'o' then
    ok = ok + 1
  else
    bad, err = bad + 1, failure
    if not one then
      redis.call('HSET', R, 'x:' .. id, failure)
      known = true
    end
  end
  if ARGV[1] == '1' and detail ~= '' then redis.call('RPUSH', D, detail) end
end

for i = 4, #ARGV, 6 do
  local index, id, outcome = tonumber(ARGV[i]), ARGV[i + 1], ARGV[i + 3]
  local fence = tonumber(one and h[12] or known and redis.call('HGET', R, 'f:' .. id) or 0)
  local verdict
  if tonumber(ARGV[i + 2]) < fence then
    verdict = 'x'
  else
    verdict = settled(index, id)
    if not verdict then
      if ended then
        verdict = 'c'
      elseif outcome == 'r' then
        redis.call('XADD', E, '*', 'type', 'retry', 'ts', now, 'step', ARGV[2], 'data', ARGV[i + 5])
        if one and not h[16] then
          h[16] = '1'
          redis.call('HSET', J, 'retried', h[16])
        end
        retries = true
        verdict = 'r'
      elseif outcome == 'd' then
        local last = tonumber(h[15])
        if not last or last > tonumber(now) or last + tonumber(ARGV[3]) <= tonumber(now) then
          redis.call('HSET', J, 'deferred_ts', now)
          redis.call('XADD', E, '*', 'type', 'deferred', 'ts', now, 'step', ARGV[2], 'data', ARGV[i + 5])
          h[15] = now
        end
        if one and status == 'running' and not h[16] then
          status, rev, updated, h[1] = 'queued', rev + 1, now, 'queued'
          redis.call('HSET', J, 'status', status, 'updated_ts', now, 'rev', rev)
          listed(KEYS[8], string.sub(J, 5), h[14], h[8], status)
        end
        retries = true
        verdict = 'd'
      else
        record(index, id, outcome, ARGV[i + 4], ARGV[i + 5])
        verdict = 'n'
      end
    end
  end
  verdicts[#verdicts + 1] = verdict
end

local function counts()
  return '{"resource_completed":' .. ok .. ',"resource_failed":' .. bad .. ',"resource_total":' .. total .. '}'
end

-- A long job's progress is told in steps of a twentieth, or when nothing was told for ten seconds.
local function telling()
  if total == 1 then return false end
  if total > 0 and math.floor(20 * (ok + bad) / total) > math.floor(20 * before / total) then return true end
  local last = redis.call('XREVRANGE', E, '+', '-', 'COUNT', 1)[1]
  return not last or tonumber(string.match(last[1], '^%d+')) + 10000 <= tonumber(now)
end

if ok + bad > before then
  rev, updated = rev + 1, now
  local set = {'resource_completed', ok, 'resource_failed', bad, 'updated_ts', now, 'rev', rev}
  if err ~= (h[10] or '') then
    set[#set + 1] = 'error'
    set[#set + 1] = err
  end
  local all = total > 0 and ok + bad >= total
  if all and ARGV[1] == '1' then
    if fin == '' then fin = 'due' end
    set[#set + 1] = 'fin'
    set[#set + 1] = fin
  elseif all then
    status = bad == 0 and 'done' or (ok == 0 and 'error' or 'partial')
    set[#set + 1] = 'status'
    set[#set + 1] = status
  end
  redis.call('HSET', J, unpack(set))
  if all and ARGV[1] ~= '1' then
    listed(KEYS[8], string.sub(J, 5), h[14], h[8], status)
    redis.call('ZADD', KEYS[9], now, string.sub(J, 5))
    redis.call('XADD', E, '*', 'type', status == 'error' and 'error' or 'done', 'ts', now, 'step', ARGV[2], 'data', counts())
    if h[13] then  -- it is an attempt at a step of a flow: an engine is to look at that run
      redis.call('ZADD', KEYS[6], now, string.match(h[13], '^%S*'))
      redis.pcall('XADD', KEYS[7], 'MAXLEN', 1, '*', 'f', '1')
    end
  elseif telling() then
    redis.call('XADD', E, '*', 'type', 'progress', 'ts', now, 'step', ARGV[2], 'data', counts())
  end
elseif retries and total == 0 then
  redis.call('HSET', J, 'updated_ts', now)  -- news: the idle timeout of a job without a total starts anew
end
return {status, fin, ok, bad, total, rev, tonumber(updated), tonumber(h[8]), h[9] or '', err, h[11] or '', unpack(verdicts)}
