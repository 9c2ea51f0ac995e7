#!lua flags=allow-oom
-- bye: ends the lease of a worker and drops its consumers where nothing is pending under them
-- KEYS lane, lease
-- ARGV group, worker
-- returns how many entries are left to the reaper
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
-- What is left belongs to a worker that is known to be gone, not to one that never took a lease.
if left > 0 then redis.call('ZADD', KEYS[2], 0, ARGV[2]) else redis.call('ZREM', KEYS[2], ARGV[2]) end
return left
