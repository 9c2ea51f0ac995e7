#!lua flags=allow-oom
-- trim: removes entries that are settled, read by every group and exported
-- KEYS lane, cursors
-- ARGV keep_ms, hold_ms, max_len, max
-- returns {removed, floor, what held it: time | size | pending | unread | export}
-- The floor is the least of the time limit, the oldest pending entry and the position of each group, and that of the
-- exporter until it has been silent for hold_ms. Above max_len (0 for none) the time limit is waived for the oldest
-- 1000, the others never. Up to max entries go at once: an exporter that comes back lets go millions.
local function less(a, b)
  local am, as = string.match(a, '(%d+)-(%d+)')
  local bm, bs = string.match(b, '(%d+)-(%d+)')
  am, as, bm, bs = tonumber(am), tonumber(as), tonumber(bm), tonumber(bs)
  return am < bm or (am == bm and as < bs)
end
if redis.call('EXISTS', KEYS[1]) == 0 then return {0, '0-0', 'time'} end
local t = redis.call('TIME')
local now = t[1] * 1000 + math.floor(t[2] / 1000)
local floor, why = string.format('%d', math.max(0, now - tonumber(ARGV[1]))) .. '-0', 'time'
local cap = tonumber(ARGV[3])
local beyond = cap > 0 and redis.call('XLEN', KEYS[1]) - cap or 0
if beyond > 0 then
  local oldest = redis.call('XRANGE', KEYS[1], '-', '+', 'COUNT', math.min(beyond, 1000) + 1)
  local id = oldest[#oldest][1]
  if less(floor, id) then floor, why = id, 'size' end
end
local groups = redis.call('XINFO', 'GROUPS', KEYS[1])
if #groups == 0 then return {0, '0-0', 'unread'} end
for _, g in ipairs(groups) do
  local f = {}
  for i = 1, #g, 2 do f[g[i]] = g[i + 1] end
  local p = redis.call('XPENDING', KEYS[1], f['name'])
  if p[1] > 0 and less(p[2], floor) then floor, why = p[2], 'pending' end
  -- What a group has acknowledged as a whole: where it is lost, it begins behind that (`provision`).
  local at = f['last-delivered-id']
  if p[1] > 0 then
    local ms, seq = string.match(p[2], '(%d+)-(%d+)')
    at = seq ~= '0' and ms .. '-' .. string.format('%d', seq - 1) or string.format('%d', ms - 1) .. '-1048576'
  end
  redis.call('HSET', KEYS[2], 'group:' .. f['name'], at)
  if less(f['last-delivered-id'], floor) then
    local ms, seq = string.match(f['last-delivered-id'], '(%d+)-(%d+)')
    floor, why = ms .. '-' .. string.format('%d', seq + 1), 'unread'
  end
end
local h = redis.call('HMGET', KEYS[2], 'exporter', 'exporter:seen')
local cursor = string.match(h[1] or '', '^%d+%-%d+$')
if cursor and math.abs(now - (tonumber(h[2] or '') or 0)) < tonumber(ARGV[2]) and less(cursor, floor) then
  floor, why = cursor, 'export'
end
-- Only whole nodes go by `~`; what is left over lies in one node.
local removed = redis.call('XTRIM', KEYS[1], 'MINID', '~', floor, 'LIMIT', math.max(500, tonumber(ARGV[4])))
if removed == 0 then removed = redis.call('XTRIM', KEYS[1], 'MINID', floor) end
return {removed, floor, why}
