#!lua flags=allow-oom
-- file_forget: drops marks of files that nobody has found for long
-- KEYS seen
-- ARGV tag, keep_hours, cursor
-- returns {cursor of the next page or 0, how many were dropped}
-- Only marks under the caller's tag, which has just looked through the whole of what it keeps.
local t = redis.call('TIME')
local hour = math.floor(t[1] / 3600)
local page = redis.call('HSCAN', KEYS[1], ARGV[3], 'COUNT', 400)
local dropped = 0
for i = 1, #page[2], 2 do
  local mark = page[2][i + 1]
  local last = struct.unpack('>I3', string.sub(mark, -3))
  if string.sub(mark, -3 - #ARGV[1], -4) == ARGV[1] and hour - last > tonumber(ARGV[2]) then
    dropped = dropped + redis.call('HDEL', KEYS[1], page[2][i])
  end
end
return {tonumber(page[1]), dropped}
