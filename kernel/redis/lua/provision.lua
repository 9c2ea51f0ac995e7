#!lua flags=allow-oom
-- provision: makes the stream and the group of a lane where they are missing
-- KEYS lane, cursors
-- ARGV group
-- returns 1 made, 0 it was there
-- A new group begins with the oldest entry. One that was lost begins behind what it was known to have acknowledged as a
-- whole (`trim` notes that): what has ended, and whose record was pruned since, does not run again.
local function less(a, b)
  local am, as = string.match(a, '^(%d+)-(%d+)$')
  local bm, bs = string.match(b, '^(%d+)-(%d+)$')
  am, as, bm, bs = tonumber(am), tonumber(as), tonumber(bm), tonumber(bs)
  return am < bm or (am == bm and as < bs)
end
local from = '0'
if redis.call('EXISTS', KEYS[1]) == 1 then
  local at = string.match(redis.call('HGET', KEYS[2], 'group:' .. ARGV[1]) or '', '^%d+%-%d+$')
  -- A foreign key of this name holds no stream: what makes the group says so.
  local about = at and redis.pcall('XINFO', 'STREAM', KEYS[1]) or {}
  for i = 1, about.err and 0 or #about, 2 do
    if about[i] == 'last-generated-id' and not less(about[i + 1], at) then from = at end
  end
end
local made = redis.pcall('XGROUP', 'CREATE', KEYS[1], ARGV[1], from, 'MKSTREAM')
if not made.err then return 1 end
if string.find(made.err, 'BUSYGROUP') then return 0 end
return made
