#!lua flags=allow-oom
-- flow_append: adds events to the timeline of a run and, in the same step, what follows from them to its projections
-- KEYS flow, timeline, snapshot, steps, logs, runs, due, wake, ended
-- ARGV run, name, fence, signal, end, max_logs, clears, batch, each: target, kind, subject, meta, data
-- returns {verdict, revision, the id of each event, '' for a log line that was dropped}
-- A verdict is ok | conflict (the fence is not the revision) | gone (no such run of this flow, it has ended, or lines
-- come before its first event) | foreign (a key of the run holds no stream). Targets count from 0, the timeline, in the
-- order of KEYS; patches follow their event. A batch of log lines that was stored before is told, not stored again.
-- An end has a time of its own, later than those of all ends that are known, whatever the clock does: whoever has read
-- them up to one has missed none. Permitted when memory is short: runs that were accepted go on.
local F, floor = KEYS[1], math.floor
local fence, ends, batch = ARGV[3], ARGV[5] == '1', ARGV[8]
local h = redis.call('HMGET', F, 'rev', 'ended', 'logs', 'logged', 'name')
if not h[1] or h[2] or h[5] ~= ARGV[2] then return {'gone', tonumber(h[1] or 0)} end
local rev = tonumber(h[1])
if fence ~= '' and fence ~= h[1] then return {'conflict', rev} end
for i = 2, 6 do
  local kind = redis.call('TYPE', KEYS[i])['ok']
  if kind ~= 'stream' and kind ~= 'none' then return {'foreign', rev} end
  -- The first event of a run is its start, which stands under a fence.
  if i == 2 and kind == 'none' and fence == '' then return {'gone', rev} end
end

-- `logged` names the last batches: ' batch ms seq stored all', one after the other.
local logged, out = h[4] or '', {'ok', rev}
if batch ~= '' then
  local ms, seq, stored, all = string.match(logged, ' ' .. batch .. ' (%d+) (%d+) (%d+) (%d+)')
  if ms then
    for i = 1, tonumber(all) do
      out[#out + 1] = i <= tonumber(stored) and ms .. '-' .. string.format('%d', tonumber(seq) + i - 1) or ''
    end
    return out
  end
end

-- The time of an id as ISO 8601. Years are counted from March, so that the day of a leap year is the last one.
local before = {0, 31, 61, 92, 122, 153, 184, 214, 245, 275, 306, 337}
local function years(y) return 365 * y + floor(y / 4) - floor(y / 100) + floor(y / 400) end
local function iso(ms)
  local days = floor(ms / 86400000) + 719468
  local y = floor(days / 365.2425)
  while years(y) > days do y = y - 1 end
  while years(y + 1) <= days do y = y + 1 end
  local day, m = days - years(y), 12
  while before[m] > day do m = m - 1 end
  local month = m <= 10 and m + 2 or m - 10
  local rest = ms % 86400000
  return string.format('%04d-%02d-%02dT%02d:%02d:%02d.%03dZ', month <= 2 and y + 1 or y, month, day - before[m] + 1,
    floor(rest / 3600000), floor(rest / 60000) % 60, floor(rest / 1000) % 60, rest % 1000)
end

local logs, most = tonumber(h[3] or 0), tonumber(ARGV[6])
local added, dropped, first = 0, 0, nil
local id, at, stamp, skipped = '', '', '', false
for i = 9, #ARGV, 5 do
  local target, kind, data = tonumber(ARGV[i]), ARGV[i + 1], ARGV[i + 4]
  if target == 0 then
    skipped = kind == 'runner.log' and logs + added >= most
    if skipped then
      dropped = dropped + 1
      out[#out + 1] = ''
    else
      if kind == 'runner.log' then added = added + 1 end
      id = redis.call('XADD', KEYS[2], '*', 'kind', kind, 'subject', ARGV[i + 2], 'data', data, 'meta', ARGV[i + 3],
        'v', '1')
      first = first or id
      out[#out + 1] = id
      local ms = string.match(id, '^%d+')
      if ms ~= at then at, stamp = ms, iso(tonumber(ms)) end
    end
  elseif not skipped then
    data = string.gsub((string.gsub(data, '<ts>', stamp)), '<id>', id)
    redis.call('XADD', KEYS[target + 2], '*', 'kind', kind, 'subject', ARGV[i + 2], 'data', data, 'meta', ARGV[i + 3],
      'v', '1')
  end
end

if added > 0 then redis.call('HSET', F, 'logs', logs + added) end
if dropped > 0 then redis.call('HINCRBY', F, 'dropped', dropped) end
if batch ~= '' then
  local ms, seq = string.match(first or '0-0', '(%d+)-(%d+)')
  local line = string.format(' %s %s %s %d %d', batch, ms, seq, added, added + dropped)
  if #logged > 512 then logged = string.gsub(logged, '^ %S+ %S+ %S+ %S+ %S+', '') end
  redis.call('HSET', F, 'logged', logged .. line)
end
if fence ~= '' then
  rev = rev + 1
  redis.call('HSET', F, 'rev', string.format('%d', rev))
end
for field in string.gmatch(ARGV[7], '%S+') do redis.call('HDEL', F, field) end
out[2] = rev
local t = redis.call('TIME')
local now = string.format('%d', t[1] * 1000 + floor(t[2] / 1000))
if ends then
  local newest = tonumber(redis.call('ZREVRANGE', KEYS[9], 0, 0, 'WITHSCORES')[2] or 0)
  local ended = string.format('%d', math.max(tonumber(now), newest + 1))
  redis.call('HSET', F, 'ended', ended)
  redis.call('HDEL', F, 'logged')
  redis.call('ZADD', KEYS[9], ended, ARGV[1])
end
if ARGV[4] == '1' then
  redis.call('ZADD', KEYS[7], now, ARGV[1])
  redis.pcall('XADD', KEYS[8], 'MAXLEN', 1, '*', 'flow', ARGV[1])
end
return out
