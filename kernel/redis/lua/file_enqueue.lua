#!lua
-- file_enqueue: puts files onto their queues that are not marked as they are now, in order, as far as there is room
-- KEYS limit, seen, queue
-- ARGV per_second, max_backlog, tag, each: field, state, before, payload
-- returns {for each file that was reached 1 put | 0 marked before | 2 overtaken, why it ended: '' | rate | backlog, ms to wait}
-- Seen and queue follow once for each file. Before is the state of its mark before it was looked at, empty for none: a
-- file whose mark is another by now was looked at too early, and is overtaken. The limit is shared by all producers: a
-- hash of puts by slot of 10 ms, none of which counts any more once a second has gone by since its end. 0 is no limit.
local per_second, max_backlog, tag = tonumber(ARGV[1]), tonumber(ARGV[2]), ARGV[3]
local t = redis.call('TIME')
local now = t[1] * 1000 + math.floor(t[2] / 1000)
local stamp = struct.pack('>I3', math.floor(t[1] / 3600))
local slot = math.floor(now / 10)

local oldest, left = nil, math.huge
if per_second > 0 then
  left = per_second
  local counts = redis.call('HGETALL', KEYS[1])
  for i = 1, #counts, 2 do
    local at = tonumber(counts[i])
    if at and at >= slot - 100 and at <= slot then
      left = left - tonumber(counts[i + 1])
      oldest = math.min(oldest or at, at)
    else
      redis.call('HDEL', KEYS[1], counts[i])
    end
  end
end

local lengths = {}
local function full(queue)
  if max_backlog == 0 then return false end
  lengths[queue] = lengths[queue] or redis.call('LLEN', queue)
  return lengths[queue] >= max_backlog
end

local done, put, why = {}, 0, ''
for i = 1, (#ARGV - 3) / 4 do
  local seen, queue = KEYS[2 * i], KEYS[2 * i + 1]
  local field, state, before, payload = ARGV[4 * i], ARGV[4 * i + 1], ARGV[4 * i + 2], ARGV[4 * i + 3]
  local marked = string.sub(redis.call('HGET', seen, field) or '', 1, #state)
  if marked == state then
    done[i] = 0
  elseif marked ~= before then
    done[i] = 2
  elseif full(queue) then
    why = 'backlog'
    break
  elseif put >= left then
    why = 'rate'
    break
  else
    redis.call('LPUSH', queue, payload)
    redis.call('HSET', seen, field, state .. tag .. stamp)
    if lengths[queue] then lengths[queue] = lengths[queue] + 1 end
    put = put + 1
    done[i] = 1
  end
end

if per_second > 0 and put > 0 then
  redis.call('HINCRBY', KEYS[1], string.format('%d', slot), put)
  redis.call('PEXPIRE', KEYS[1], 2000)
  oldest = oldest or slot
end
local wait = why == 'rate' and math.max(1, ((oldest or slot) + 101) * 10 - now) or 0
return {done, why, wait}
