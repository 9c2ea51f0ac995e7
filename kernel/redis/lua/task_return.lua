#!lua flags=allow-oom
-- task_return: gives entries that are with nobody back to be run, though they count as read
-- KEYS lane
-- ARGV group, each: entry
-- returns how many were with nobody
local returned = 0
for i = 2, #ARGV do
  if #redis.call('XPENDING', KEYS[1], ARGV[1], ARGV[i], ARGV[i], 1) == 0 then
    returned = returned + #redis.call('XCLAIM', KEYS[1], ARGV[1], '_returned', 0, ARGV[i], 'FORCE', 'JUSTID')
  end
end
return returned
