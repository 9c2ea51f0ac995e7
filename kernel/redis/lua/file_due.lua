#!lua flags=allow-oom
-- file_due: puts file jobs whose next attempt is due back onto their queues
-- KEYS delayed, suspects, queues
-- ARGV max
-- returns {how many were put back, ms until the next is due or -1 for none, suspects waiting}
-- All queues follow as keys, the default one last: it gets what waits for a queue that is not among them (any more).
-- A member is `{name}|{queue}|{job}`.
local t = redis.call('TIME')
local now = t[1] * 1000 + math.floor(t[2] / 1000)
local FIRST = 3

local function parted(rest)
  for i = FIRST, #KEYS do
    local length = #KEYS[i]
    if string.sub(rest, 1, length + 1) == KEYS[i] .. '|' then return KEYS[i], string.sub(rest, length + 2) end
  end
  return KEYS[#KEYS], string.match(rest, '^.-|(%s*{.*)$') or rest
end

local moved = 0
for _, member in ipairs(redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', now, 'LIMIT', 0, ARGV[1])) do
  local queue, job = parted(string.match(member, '^[^|]*|(.*)$') or member)
  -- Pushed before it is removed; where its queue is no list it waits for another second.
  if type(redis.pcall('LPUSH', queue, job)) == 'number' then
    redis.call('ZREM', KEYS[1], member)
    moved = moved + 1
  else
    redis.call('ZADD', KEYS[1], string.format('%d', now + 1000), member)
  end
end
local after = redis.call('ZRANGE', KEYS[1], 0, 0, 'WITHSCORES')
local wait = after[2] and math.max(0, math.ceil(tonumber(after[2])) - now) or -1
return {moved, wait, redis.call('LLEN', KEYS[2])}
