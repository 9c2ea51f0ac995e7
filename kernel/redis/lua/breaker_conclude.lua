#!lua flags=allow-oom
-- breaker_conclude: what a probe has found closes its breaker, or opens it anew, or only frees the place of the probe
-- KEYS breaker, shut, index, turn
-- ARGV name, token, verdict, cooldown_ms, keep_ms
-- returns {state, ms to wait, ms that it was not closed}; state: closed | open | half_open
-- verdict: close | open | silent | free; `silent` opens it, too, and nothing was heard of what is broken. Only the probe that holds the place is heard; an operator closes without a token, and
-- the window is forgotten whenever a breaker is closed.
local t = redis.call('TIME')
local now = t[1] * 1000 + math.floor(t[2] / 1000)
local cooldown = tonumber(ARGV[4])
local h = redis.call('HMGET', KEYS[1], 'until', 'probe', 'since')
local ends = tonumber(h[1])
local operator = ARGV[2] == '' and ARGV[3] == 'close'
if not ends and not operator then return {'closed', 0, 0} end
if operator or (h[2] == ARGV[2] and ARGV[3] == 'close') then
  redis.call('DEL', KEYS[1])
  redis.call('ZREM', KEYS[2], ARGV[1])
  redis.call('ZREM', KEYS[3], ARGV[1])
  if not ends then return {'closed', 0, 0} end
  redis.call('SET', KEYS[4], string.format('%d%06d', t[1], t[2]))
  return {'closed', 0, math.max(0, now - (tonumber(h[3]) or now))}
end
if h[2] == ARGV[2] then
  redis.call('HDEL', KEYS[1], 'probe', 'lapses')
  if ARGV[3] == 'open' then redis.call('HSET', KEYS[1], 'heard', string.format('%d', now)) end
  if ARGV[3] == 'open' or ARGV[3] == 'silent' then
    ends = now + cooldown
    redis.call('HSET', KEYS[1], 'until', string.format('%d', ends))
    redis.call('PEXPIRE', KEYS[1], ARGV[5])
    redis.call('ZADD', KEYS[2], string.format('%d', ends), ARGV[1])
    redis.call('ZADD', KEYS[3], string.format('%d', now + tonumber(ARGV[5])), ARGV[1])
    redis.call('SET', KEYS[4], string.format('%d%06d', t[1], t[2]))
  end
end
if now < ends then return {'open', math.min(ends - now, cooldown), 0} end
return {'half_open', 0, 0}
