#!lua flags=allow-oom
-- file_settle: takes file jobs off the worker's processing lists, each to where its outcome sends it
-- KEYS batch, processing, solo, completed, dead_letters, delayed, crashes, suspects, queues
-- ARGV number, keep_ms, each: kind, from, job, to, value, wait_ms, name
-- returns one letter for each: y moved | n it was not on the list any more | e its destination is no list; '' for a batch older than the last
-- A kind is c (done: onto the completed list) | b (a dead letter: value) | r (another attempt: value waits for wait_ms
-- in the delay set, as `{name}|{queue}|{value}`) | g (given back, to be the next of its queue) | a (given back to those
-- that run alone). `from` is the number of its list among the keys, `to` that of its queue.
-- Batches are numbered in order, and the letters of the last one are kept: a repetition reads them and moves nothing,
-- since of several copies of a job it would otherwise take another one each time. A job is pushed before it is removed.
local before = redis.call('GET', KEYS[1])
if before then
  local number, letters = string.match(before, '^(%d+):(.*)$')
  if number == ARGV[1] then return letters end
  if tonumber(number) > tonumber(ARGV[1]) then return '' end
end
local t = redis.call('TIME')
local now = t[1] * 1000 + math.floor(t[2] / 1000)

local function crashes_follow(old, new)
  if old == new then return end
  local count = redis.call('HGET', KEYS[7], redis.sha1hex(old))
  if not count then return end
  redis.call('HDEL', KEYS[7], redis.sha1hex(old))
  redis.call('HSET', KEYS[7], redis.sha1hex(new), count)
end

local function push(kind, job, to, value, wait, name)
  if kind == 'c' then return redis.pcall('LPUSH', KEYS[4], job) end
  if kind == 'b' then return redis.pcall('LPUSH', KEYS[5], value) end
  if kind == 'g' then return redis.pcall('RPUSH', KEYS[tonumber(to)], job) end
  if kind == 'a' then return redis.pcall('RPUSH', KEYS[8], job) end
  local member = name .. '|' .. KEYS[tonumber(to)] .. '|' .. value
  return redis.pcall('ZADD', KEYS[6], string.format('%d', now + tonumber(wait)), member)
end

local letters = {}
for i = 3, #ARGV, 7 do
  local kind, list, job, value = ARGV[i], KEYS[tonumber(ARGV[i + 1])], ARGV[i + 2], ARGV[i + 4]
  local letter = 'n'
  if redis.call('LPOS', list, job, 'RANK', -1) then
    letter = 'e'
    if type(push(kind, job, ARGV[i + 3], value, ARGV[i + 5], ARGV[i + 6])) == 'number' then
      letter = 'y'
      redis.call('LREM', list, -1, job)
      if kind == 'c' or kind == 'b' then
        redis.call('HDEL', KEYS[7], redis.sha1hex(job))
      elseif kind == 'r' then
        crashes_follow(job, value)
      end
    end
  end
  letters[#letters + 1] = letter
end
letters = table.concat(letters)
redis.call('SET', KEYS[1], ARGV[1] .. ':' .. letters, 'PX', ARGV[2])
return letters
