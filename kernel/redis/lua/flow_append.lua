#!lua flags=allow-oom
-- flow_append: adds events to the timeline of a run and, in the same step, what follows from them to its projections
-- KEYS flow, timeline, snapshot, steps, logs, runs, due, wake, ended, early
-- ARGV run, name, fence, signal, end, max_logs, clears, batch, each: target, kind, subject, meta, data, attempt
-- returns {verdict, revision, the id of each event; for a log line also 'held', or '' where it was dropped}
-- A verdict is ok | conflict (the fence is not the revision) | gone (no such run of this flow, it has ended, or lines
-- come before its first event) | foreign (a key of the run holds something else). Targets count from 0, the timeline,
-- in the order of KEYS; patches follow their event. A batch of log lines that was stored before is told, not stored
-- again. An attempt is 'number step' where a log line waits until that attempt has begun, or where an event says that
-- it has, or is over; '*' where the event ends the run. A line that waits is held in `early`, and comes right behind
-- the event that lets it go, or before the end of the run. `began:<step>` is the last attempt that has begun.
-- An end has a time of its own, later than those of all ends that are known, whatever the clock does: whoever has read
-- them up to one has missed none. Permitted when memory is short: runs that were accepted go on.
local F, floor = KEYS[1], math.floor
local fence, ends, batch = ARGV[3], ARGV[5] == '1', ARGV[8]
local h = redis.call('HMGET', F, 'rev', 'ended', 'logs', 'logged', 'name', 'early')
if not h[1] or h[2] or h[5] ~= ARGV[2] then return {'gone', tonumber(h[1] or 0)} end
local rev = tonumber(h[1])
if fence ~= '' and fence ~= h[1] then return {'conflict', rev} end
for i = 2, 6 do
  local kind = redis.call('TYPE', KEYS[i])['ok']
  if kind ~= 'stream' and kind ~= 'none' then return {'foreign', rev} end
  -- The first event of a run is its start, which stands under a fence.
  if i == 2 and kind == 'none' and fence == '' then return {'gone', rev} end
end
local kept = redis.call('TYPE', KEYS[10])['ok']
if kept ~= 'list' and kept ~= 'none' then return {'foreign', rev} end

-- `logged` names the last batches: ' batch ms seq all fates', one after the other. Fates are those of the lines, in
-- their order: s(tored), h(eld) or d(ropped), each with the number of lines that share it.
local logged, out = h[4] or '', {'ok', rev}
if batch ~= '' then
  local ms, seq, fates = string.match(logged, ' ' .. batch .. ' (%d+) (%d+) %d+ (%S+)')
  if ms then
    seq = tonumber(seq)
    for fate, count in string.gmatch(fates, '(%a)(%d+)') do
      for _ = 1, tonumber(count) do
        out[#out + 1] = fate == 's' and ms .. '-' .. string.format('%d', seq) or fate == 'h' and 'held' or ''
        if fate == 's' then seq = seq + 1 end
      end
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

local id, at, stamp = '', '', ''
-- Stores the record that begins at `i` of that table; a patch gets the id and the time of the event before it.
local function put(of, i)
  local target, data = tonumber(of[i]), of[i + 4]
  if target > 0 then data = string.gsub((string.gsub(data, '<ts>', stamp)), '<id>', id) end
  local entry = redis.call('XADD', KEYS[target + 2], '*', 'kind', of[i + 1], 'subject', of[i + 2], 'data', data, 'meta',
    of[i + 3], 'v', '1')
  if target > 0 then return end
  id = entry
  local ms = string.match(id, '^%d+')
  if ms ~= at then at, stamp = ms, iso(tonumber(ms)) end
end

local logs, most = tonumber(h[3] or 0), tonumber(ARGV[6])
local added, dropped, first = 0, 0, nil
local MOST_EARLY, MOST_BYTES = 5000, 4194304
local held, bytes = string.match(h[6] or '0 0', '(%d+) (%d+)')
held, bytes = tonumber(held), tonumber(bytes)

-- The lines that are held, once they are read, and of each step the places of its own among them.
local early, places = nil, {}
local function read_early()
  early, held, bytes = redis.call('LRANGE', KEYS[10], 0, -1), 0, 0
  for place, packed in ipairs(early) do
    local line = cmsgpack.unpack(packed)
    held, bytes = held + 1, bytes + #packed
    early[place] = {packed, line}
    places[line[1]] = places[line[1]] or {}
    table.insert(places[line[1]], place)
  end
end

local function let_go(place)
  local packed, line = unpack(early[place])
  for i = 3, #line, 6 do put(line, i) end
  early[place] = false
  added, held, bytes = added + 1, held - 1, bytes - #packed
end

-- Stores what was held of that step, up to that attempt; without one, everything.
local function release(step, number)
  if held == 0 then return end
  if not early then read_early() end
  if not step then
    for place = 1, #early do if early[place] then let_go(place) end end
    return
  end
  local left = {}
  for _, place in ipairs(places[step] or {}) do
    if early[place][2][2] <= number then let_go(place) else left[#left + 1] = place end
  end
  places[step] = left
end

local last = {}
local function last_begun(step)
  if not last[step] then last[step] = tonumber(redis.call('HGET', F, 'began:' .. step) or 0) end
  return last[step]
end

local fates, fate, line, going = {}, '', nil, nil
-- What comes behind an event and its patches.
local function conclude()
  if line then
    local packed = cmsgpack.pack(line)
    redis.call('RPUSH', KEYS[10], packed)
    held, bytes, line = held + 1, bytes + #packed, nil
  end
  if going then
    release(going[1], going[2])
    going = nil
  end
end

local function fate_of(is_line, step, number)
  if not is_line then return 's' end
  if logs + added + held >= most then return 'd' end
  if not step or number <= last_begun(step) then return 's' end
  return held < MOST_EARLY and bytes < MOST_BYTES and 'h' or 'd'
end

for i = 9, #ARGV, 6 do
  if ARGV[i] == '0' then
    conclude()
    local is_line = ARGV[i + 1] == 'runner.log'
    local text, step = string.match(ARGV[i + 5], '^(%d+) (.*)$')
    local number = tonumber(text)
    fate = fate_of(is_line, step, number)
    fates[#fates + 1] = fate
    if ARGV[i + 5] == '*' then release() end
    if fate == 's' then
      put(ARGV, i)
      first = first or id
      out[#out + 1] = id
      if is_line then
        added = added + 1
      elseif step then
        going = {step, number}
        if number > last_begun(step) then
          last[step] = number
          redis.call('HSET', F, 'began:' .. step, text)
        end
      end
    elseif fate == 'h' then
      out[#out + 1] = 'held'
      line = {step, number, unpack(ARGV, i, i + 5)}
    else
      out[#out + 1] = ''
      dropped = dropped + 1
    end
  elseif fate == 's' then
    put(ARGV, i)
  elseif fate == 'h' then
    for j = i, i + 5 do line[#line + 1] = ARGV[j] end
  end
end
conclude()

if early then
  redis.call('DEL', KEYS[10])
  for _, kept_line in ipairs(early) do if kept_line then redis.call('RPUSH', KEYS[10], kept_line[1]) end end
end
local now_early = string.format('%d %d', held, bytes)
if now_early ~= (h[6] or '0 0') then redis.call('HSET', F, 'early', now_early) end
if added > 0 then redis.call('HSET', F, 'logs', logs + added) end
if dropped > 0 then redis.call('HINCRBY', F, 'dropped', dropped) end
if batch ~= '' then
  local ms, seq = string.match(first or '0-0', '(%d+)-(%d+)')
  local told, i = '', 1
  while i <= #fates do
    local j = i
    while fates[j + 1] == fates[i] do j = j + 1 end
    told, i = told .. fates[i] .. string.format('%d', j - i + 1), j + 1
  end
  while #logged > 512 do logged = string.gsub(logged, '^ %S+ %S+ %S+ %S+ %S+', '') end
  redis.call('HSET', F, 'logged', logged .. string.format(' %s %s %s %d %s', batch, ms, seq, #fates, told))
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
