#!lua flags=allow-oom
-- file_purge: deletes dead letters, each only while it stands where it was seen
-- KEYS dead_letters, answer
-- ARGV keep_ms, each: place, digest
-- returns a word of one letter for each: m deleted, g gone or elsewhere
-- Places and the answer are those of file_replay.
local LIST, ANSWER = KEYS[1], KEYS[2]
local known = redis.call('GET', ANSWER)
if known then return known end
local words, marked = {}, 0
for i = 2, #ARGV, 2 do
  local place, word = '-' .. ARGV[i], 'g'
  local letter = redis.call('LINDEX', LIST, place)
  if letter and redis.sha1hex(letter) == ARGV[i + 1] then
    redis.call('LSET', LIST, place, ANSWER)
    marked = marked + 1
    word = 'm'
  end
  words[#words + 1] = word
end
if marked > 0 then
  local behind = tonumber(ARGV[2]) * 2 < redis.call('LLEN', LIST)
  redis.call('LREM', LIST, behind and -marked or marked, ANSWER)
end
local answer = table.concat(words)
redis.call('SET', ANSWER, answer, 'PX', ARGV[1])
return answer
