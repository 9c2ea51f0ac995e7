#!lua flags=allow-oom
-- breaker_record: counts results of a closed breaker, and opens it where too many of its window are failures
-- KEYS breaker, shut, index, turn
-- ARGV name, writer, seq, successes, failures, bucket_ms, buckets, threshold, min_samples, cooldown_ms, keep_ms
-- returns {state, ms to wait, opened}; state: closed | open | half_open
-- `seq` grows with each call of a writer, so that a repeated call counts once. While a breaker is not closed only its
-- probe counts, and what ends late says nothing.
local t = redis.call('TIME')
local now = t[1] * 1000 + math.floor(t[2] / 1000)
local cooldown = tonumber(ARGV[10])
local ends = tonumber(redis.call('HGET', KEYS[1], 'until'))
if ends and now < ends then return {'open', math.min(ends - now, cooldown), 0} end
if ends then return {'half_open', 0, 0} end
local current = math.floor(now / ARGV[6])
local oldest = current - ARGV[7] + 1
local h, gone = {}, {}
local all = redis.call('HGETALL', KEYS[1])
for i = 1, #all, 2 do
  local place = tonumber(string.match(all[i], '^[tf](%d+)$') or string.match(all[i + 1], ':(%d+)$'))
  if place and oldest <= place and place <= current then h[all[i]] = all[i + 1] else gone[#gone + 1] = all[i] end
end
for i = 1, math.min(#gone, 500) do redis.call('HDEL', KEYS[1], gone[i]) end
local place, writer = string.format('%d', current), 'w' .. ARGV[2]
local seen = h[writer] and tonumber(string.match(h[writer], '^%d+'))
if not seen or seen < tonumber(ARGV[3]) then
  redis.call('HSET', KEYS[1], writer, ARGV[3] .. ':' .. place)
  h['t' .. place] = redis.call('HINCRBY', KEYS[1], 't' .. place, ARGV[4] + ARGV[5])
  if ARGV[5] ~= '0' then h['f' .. place] = redis.call('HINCRBY', KEYS[1], 'f' .. place, ARGV[5]) end
end
local window = ARGV[6] * ARGV[7]
local samples, failures = 0, 0
for n = oldest, current do
  samples = samples + (tonumber(h['t' .. string.format('%d', n)]) or 0)
  failures = failures + (tonumber(h['f' .. string.format('%d', n)]) or 0)
end
redis.call('PEXPIRE', KEYS[1], window)
if failures == 0 then return {'closed', 0, 0} end
redis.call('ZREMRANGEBYSCORE', KEYS[3], '-inf', string.format('%d', now))
redis.call('ZADD', KEYS[3], string.format('%d', now + window), ARGV[1])
if samples < tonumber(ARGV[9]) or failures / samples < tonumber(ARGV[8]) then return {'closed', 0, 0} end
local keep = tonumber(ARGV[11])
redis.call('HSET', KEYS[1], 'until', string.format('%d', now + cooldown), 'since', string.format('%d', now))
redis.call('PEXPIRE', KEYS[1], keep)
redis.call('ZREMRANGEBYSCORE', KEYS[2], '-inf', string.format('%d', now - keep))
redis.call('ZADD', KEYS[2], string.format('%d', now + cooldown), ARGV[1])
redis.call('ZADD', KEYS[3], string.format('%d', now + keep), ARGV[1])
redis.call('SET', KEYS[4], string.format('%d%06d', t[1], t[2]))
return {'open', cooldown, 1}
