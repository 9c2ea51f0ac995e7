#!lua flags=allow-oom
-- breaker_ask: how a breaker stands; once its cooldown is over, one caller at a time is let through as its probe
-- KEYS breaker, shut
-- ARGV name, token, probe_ms, keep_ms, cooldown_ms, bucket_ms, buckets
-- returns {state, ms to wait, granted, samples, failures}; state: closed | open | half_open
-- Without a token it only tells. With the token of a running probe it renews that probe; one that is not renewed for
-- `probe_ms` frees its place. A cooldown that ends later than it could is what a clock that went back has left.
local t = redis.call('TIME')
local now = t[1] * 1000 + math.floor(t[2] / 1000)
local h, samples, failures = {}, 0, 0
local all = redis.call('HGETALL', KEYS[1])
for i = 1, #all, 2 do h[all[i]] = all[i + 1] end
local current = math.floor(now / ARGV[6])
for n = current - ARGV[7] + 1, current do
  samples = samples + (tonumber(h['t' .. string.format('%d', n)]) or 0)
  failures = failures + (tonumber(h['f' .. string.format('%d', n)]) or 0)
end
local asks = ARGV[2] ~= ''
local ends = tonumber(h['until'])
if not ends then
  if asks then redis.call('ZREM', KEYS[2], ARGV[1]) end
  return {'closed', 0, 0, samples, failures}
end
if ends - now > tonumber(ARGV[5]) then
  ends = now + tonumber(ARGV[5])
  if asks then
    redis.call('HSET', KEYS[1], 'until', string.format('%d', ends))
    redis.call('ZADD', KEYS[2], string.format('%d', ends), ARGV[1])
  end
end
if now < ends then return {'open', ends - now, 0, samples, failures} end
local lapses = math.min(tonumber(h['lapses']) or 0, now + tonumber(ARGV[3]))
if h['probe'] and now < lapses and h['probe'] ~= ARGV[2] then
  return {'half_open', lapses - now, 0, samples, failures}
end
if not asks then return {'half_open', 0, 0, samples, failures} end
redis.call('HSET', KEYS[1], 'probe', ARGV[2], 'lapses', string.format('%d', now + tonumber(ARGV[3])))
redis.call('PEXPIRE', KEYS[1], ARGV[4])
return {'half_open', 0, 1, samples, failures}
