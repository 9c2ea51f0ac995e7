#!lua flags=allow-oom
-- give_back: returns entries unrun; costs neither an attempt nor a crash
-- KEYS lane
-- ARGV group, worker, each: entry
-- returns how many were still the worker's
local given = 0
for i = 3, #ARGV do
  for _, name in ipairs({ARGV[2], ARGV[2] .. '.solo'}) do
    if #redis.call('XPENDING', KEYS[1], ARGV[1], ARGV[i], ARGV[i], 1, name) == 1 then
      redis.call('XCLAIM', KEYS[1], ARGV[1], '_returned', 0, ARGV[i], 'JUSTID')
      given = given + 1
    end
  end
end
return given
