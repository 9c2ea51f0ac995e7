#!lua flags=allow-oom
-- provision: makes the stream and the group of a lane where they are missing; a new group begins with the oldest entry
-- KEYS lane
-- ARGV group
-- returns 1 made, 0 it was there
local made = redis.pcall('XGROUP', 'CREATE', KEYS[1], ARGV[1], '0', 'MKSTREAM')
if not made.err then return 1 end
if string.find(made.err, 'BUSYGROUP') then return 0 end
return made
