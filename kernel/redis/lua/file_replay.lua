#!lua flags=allow-oom
-- file_replay: puts dead letters back onto their queues, each only while it stands where it was seen
-- KEYS dead_letters, answer, queue
-- ARGV keep_ms, each: place, digest, to, job
-- returns a word of one letter for each: m moved, g gone or elsewhere, n its queue is no list
-- Several queues follow as keys; `to` is the number of one of them, from 1. A place counts from the oldest letter,
-- which is 1, so what comes meanwhile moves none. Each is pushed before it is marked, and what is marked goes in one
-- sweep. The answer is kept under the name of the call: two letters may be alike, and a repetition must not take the
-- second one.
local LIST, ANSWER, QUEUES = KEYS[1], KEYS[2], 2
local known = redis.call('GET', ANSWER)
if known then return known end
local words, moved = {}, 0
for i = 2, #ARGV, 4 do
  local place, word = '-' .. ARGV[i], 'g'
  local letter = redis.call('LINDEX', LIST, place)
  if letter and redis.sha1hex(letter) == ARGV[i + 1] then
    if type(redis.pcall('LPUSH', KEYS[QUEUES + tonumber(ARGV[i + 2])], ARGV[i + 3])) == 'number' then
      redis.call('LSET', LIST, place, ANSWER)
      moved = moved + 1
      word = 'm'
    else
      word = 'n'
    end
  end
  words[#words + 1] = word
end
if moved > 0 then
  local behind = tonumber(ARGV[2]) * 2 < redis.call('LLEN', LIST)
  redis.call('LREM', LIST, behind and -moved or moved, ANSWER)
end
local answer = table.concat(words)
redis.call('SET', ANSWER, answer, 'PX', ARGV[1])
return answer
