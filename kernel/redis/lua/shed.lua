#!lua flags=allow-oom
-- shed: removes the oldest entries of a stream by age or by size, but none that an exporter still has to read
-- KEYS stream, cursors
-- ARGV keep_ms, hold_ms, max_len, max
-- returns how many entries it removed
-- By size where max_len is not 0, else by age; up to max entries at once, 500 at least, for nodes go whole. What the
-- exporter has not reached stays until it has been silent for hold_ms.
local t = redis.call('TIME')
local now = t[1] * 1000 + math.floor(t[2] / 1000)
local function split(id)
  local ms, seq = string.match(id or '', '^(%d+)-(%d+)$')
  return tonumber(ms), tonumber(seq)
end
local function less(a, b)
  local am, as = split(a)
  local bm, bs = split(b)
  return am < bm or (am == bm and as < bs)
end
local cap, most = tonumber(ARGV[3]), math.max(500, tonumber(ARGV[4]))
local floor = string.format('%d', math.max(0, now - tonumber(ARGV[1]))) .. '-0'
if cap > 0 then
  most = math.min(most, redis.call('XLEN', KEYS[1]) - cap)
  if most <= 0 then return 0 end
  floor = '18446744073709551615-18446744073709551615'
end
local h = redis.call('HMGET', KEYS[2], 'exporter', 'exporter:seen')
if split(h[1]) and math.abs(now - (tonumber(h[2] or '') or 0)) < tonumber(ARGV[2]) and less(h[1], floor) then
  floor = h[1]
end
-- Only whole nodes go by `~`; what is left over lies in one node.
local removed = redis.call('XTRIM', KEYS[1], 'MINID', '~', floor, 'LIMIT', most)
if removed == 0 and cap > 0 then
  local oldest = redis.call('XRANGE', KEYS[1], '-', '+', 'COUNT', math.min(most, 500) + 1)
  local id = oldest[#oldest][1]
  if less(id, floor) then floor = id end
end
if removed == 0 then removed = redis.call('XTRIM', KEYS[1], 'MINID', floor) end
return removed
