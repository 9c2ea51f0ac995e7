#!lua flags=allow-oom
-- bye: ends the lease of a worker and drops its consumers where nothing is pending under them
-- KEYS lane, lease
-- ARGV group, worker
-- returns how many entries are left to the reaper
redis.call('ZREM', KEYS[2], ARGV[2])
local left = 0
for _, c in ipairs(redis.call('XINFO', 'CONSUMERS', KEYS[1], ARGV[1])) do
  local f = {}
  for i = 1, #c, 2 do f[c[i]] = c[i + 1] end
  if f['name'] == ARGV[2] or f['name'] == ARGV[2] .. '.solo' then
    if f['pending'] == 0 then
      redis.call('XGROUP', 'DELCONSUMER', KEYS[1], ARGV[1], f['name'])
    else
      left = left + f['pending']
    end
  end
end
return left
