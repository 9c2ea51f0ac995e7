#!lua flags=allow-oom
-- flow_rest: says when runs are to be looked at again, where nothing has signalled them since they were claimed
-- KEYS due
-- ARGV each: flow_id, lease, next_ms
-- returns 1 it rests | 0 it is due, or another's, for each
-- Next_ms 0: not before it is signalled. Permitted when memory is short: it takes no new work.
local out = {}
for i = 1, #ARGV, 3 do
  local score = redis.call('ZSCORE', KEYS[1], ARGV[i])
  out[#out + 1] = 0
  if score and tonumber(score) == tonumber(ARGV[i + 1]) then
    if ARGV[i + 2] == '0' then
      redis.call('ZREM', KEYS[1], ARGV[i])
    else
      redis.call('ZADD', KEYS[1], ARGV[i + 2], ARGV[i])
    end
    out[#out] = 1
  end
end
return out
