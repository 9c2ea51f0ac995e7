#!lua flags=allow-oom
-- file_retain: removes what a list has too many of, and what it has kept for too long, the oldest first
-- KEYS list, marks
-- ARGV max_count, max_age_ms, max
-- returns {how many were removed, 1 where there is more to remove}
-- Nothing in an entry tells since when the list has it. So a mark is set now and then: `how many entries the list had
-- had by now:digest of the newest`, scored by the time. What stands at or below a mark that is older than max_age_ms is
-- too old. If anybody else has removed something since, the entry in that place is another one; then the mark is void,
-- and those entries stay until a later mark is old enough. The member `removed` counts in negative scores.
local LIST, MARKS, longest, age, max = KEYS[1], KEYS[2], tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
local MARKS_OF_AN_AGE = 64
local t = redis.call('TIME')
local now = t[1] * 1000 + math.floor(t[2] / 1000)
local length = redis.call('LLEN', LIST)
if length == 0 then
  redis.call('DEL', MARKS)
  return {0, 0}
end
local function text(number) return string.format('%d', number) end
local function digest(place) return redis.sha1hex(redis.call('LINDEX', LIST, text(place)) or '') end

local removed = -tonumber(redis.call('ZSCORE', MARKS, 'removed') or '0')
redis.call('ZREMRANGEBYSCORE', MARKS, '(' .. text(now), '+inf') -- the clock of the server went back

local old = 0
local marks = redis.call('ZREVRANGEBYSCORE', MARKS, text(now - age), '(0', 'LIMIT', 0, 2 * MARKS_OF_AN_AGE)
for _, mark in ipairs(marks) do
  local ever, newest = string.match(mark, '^(%d+):(%x+)$')
  local count = tonumber(ever) - removed
  if count > 0 and digest(-count) == newest then
    old = count
    break
  end
end

local many = math.max(old, length - longest, 0)
local going = math.min(many, max)
if going >= old then redis.call('ZREMRANGEBYSCORE', MARKS, '(0', text(now - age)) end
if going > 0 then
  redis.call('LTRIM', LIST, 0, text(-going - 1))
  redis.call('ZINCRBY', MARKS, text(-going), 'removed')
end

local last = redis.call('ZREVRANGEBYSCORE', MARKS, '+inf', '(0', 'WITHSCORES', 'LIMIT', 0, 1)[2]
if going < length and (not last or tonumber(last) + age / MARKS_OF_AN_AGE <= now) then
  redis.call('ZADD', MARKS, 'NX', text(now), text(removed + length) .. ':' .. digest(0))
end
return {going, many > going and 1 or 0}
