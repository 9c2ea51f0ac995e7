#!lua flags=allow-oom
-- flow_rest: gives back runs, and says when to look again at those that nothing has signalled since they were claimed
-- KEYS due, held
-- ARGV each: run, lease, next_ms
-- returns 1 it rests | 0 it is due at once, or another's, for each
-- Next_ms 0: not before it is signalled. Permitted when memory is short: it takes no new work.
local t = redis.call('TIME')
local now = string.format('%d', t[1] * 1000 + math.floor(t[2] / 1000))
local out = {}
for i = 1, #ARGV, 3 do
  local run, lease, following = ARGV[i], ARGV[i + 1], ARGV[i + 2]
  out[#out + 1] = 0
  if redis.call('HGET', KEYS[2], run) == lease then
    redis.call('HDEL', KEYS[2], run)
    local score = redis.call('ZSCORE', KEYS[1], run)
    if score and tonumber(score) ~= tonumber(lease) then
      redis.call('ZADD', KEYS[1], now, run)
    else
      -- Where the score is lost, somebody has removed the set: the run is still to be looked at.
      if following == '0' then
        redis.call('ZREM', KEYS[1], run)
      else
        redis.call('ZADD', KEYS[1], following, run)
      end
      out[#out] = 1
    end
  end
end
return out
