#!lua flags=allow-oom
-- lane_audit: looks at a page of the pending list for what nobody would take up any more
-- KEYS lane, lease, redo, delayed
-- ARGV group, after, to, max, longest_ms, drops
-- returns {where to go on, or '' at the end, 1 a worker is at an entry that is gone | 0, entries dropped, entries that
--   are due again, then the payload of each entry that is there}
-- What waits for its next attempt and has lost its time is due now. Where drops is 1, entries that somebody has deleted
-- leave the pending list, but for those of workers that have a lease, for longest_ms at most; payloads follow only then.
local L, G, drops = KEYS[1], ARGV[1], ARGV[6] == '1'
local out = {'', 0, 0, 0}
local t = redis.call('TIME')
local now = t[1] * 1000 + math.floor(t[2] / 1000)
-- Without a stream or a group nothing is pending.
local rows = redis.pcall('XPENDING', L, G, ARGV[2], ARGV[3], ARGV[4])
if rows.err then return out end
for _, row in ipairs(rows) do
  local id, name = row[1], row[2]
  local timeless = name == '_delayed' and not redis.call('ZSCORE', KEYS[4], id)
  local entry = (drops or timeless) and redis.call('XRANGE', L, id, id)[1]
  if entry then
    if timeless then
      redis.call('ZADD', KEYS[4], now, id)
      out[4] = out[4] + 1
    end
    for i = 1, drops and #entry[2] or 0, 2 do
      if entry[2][i] == 'payload' then out[#out + 1] = entry[2][i + 1] end
    end
  elseif drops then
    local ends = redis.call('ZSCORE', KEYS[2], (string.gsub(name, '%.solo$', '')))
    if string.sub(name, 1, 1) ~= '_' and ends and tonumber(ends) >= now and row[3] < tonumber(ARGV[5]) then
      out[2] = 1
    else
      redis.call('XACK', L, G, id)
      redis.call('HDEL', KEYS[3], id)
      redis.call('ZREM', KEYS[4], id)
      out[3] = out[3] + 1
    end
  end
end
if #rows == tonumber(ARGV[4]) then out[1] = '(' .. rows[#rows][1] end
return out
