#!lua flags=allow-oom
-- route: puts entries aside for workers elsewhere; costs neither a delivery nor a crash
-- KEYS lane
-- ARGV group, worker, each: entry, to
-- returns how many were still the worker's
local routed = 0
for i = 3, #ARGV, 2 do
  for _, name in ipairs({ARGV[2], ARGV[2] .. '.solo'}) do
    if #redis.call('XPENDING', KEYS[1], ARGV[1], ARGV[i], ARGV[i], 1, name) == 1 then
      redis.call('XCLAIM', KEYS[1], ARGV[1], ARGV[i + 1], 0, ARGV[i], 'JUSTID')
      routed = routed + 1
    end
  end
end
return routed
