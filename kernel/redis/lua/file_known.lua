#!lua flags=allow-oom
-- file_known: tells which files are marked as they are now, and keeps the marks of those
-- KEYS seen
-- ARGV tag, each: field, state
-- returns for each file: 1 marked as it is now | the state in its mark, empty for none
-- One key for each file. A mark is state, tag (who keeps it) and the hour in which the file was last found; it is written
-- anew only where that hour is long ago, so that looking through a directory of marked files changes next to nothing.
local t = redis.call('TIME')
local hour = math.floor(t[1] / 3600)
local REFRESH_HOURS = 12

local found = {}
for i, key in ipairs(KEYS) do
  local field, state = ARGV[2 * i], ARGV[2 * i + 1]
  local mark = redis.call('HGET', key, field)
  if mark and string.sub(mark, 1, #state) == state then
    found[i] = 1
    local last = struct.unpack('>I3', string.sub(mark, -3))
    if math.abs(hour - last) >= REFRESH_HOURS then
      redis.call('HSET', key, field, state .. ARGV[1] .. struct.pack('>I3', hour))
    end
  else
    found[i] = mark and string.sub(mark, 1, #state) or ''
  end
end
return found
