#!lua
-- task_admit: lets task jobs in as long as there is room, and notes each in the outbox
-- KEYS stream, outbox, open, noted
-- ARGV max_backlog, whole, each: task, job_id, task_max
-- returns {now ms, age of the oldest entry in ms, then for each: 0 admitted | n: the backlog is full with n | -n: that of its task is}
-- Where whole is 1, one refusal refuses all: then none is admitted, whatever its own verdict says.
-- Task_max is 0 for none. Who is in the outbox already was admitted before and is again. Noted counts the outbox by
-- task, as open counts the stream: nothing is walked, however much waits.
local length = redis.call('XLEN', KEYS[1])
local noted = redis.call('ZCARD', KEYS[2])
local t = redis.call('TIME')
local now = t[1] * 1000 + math.floor(t[2] / 1000)
local now_text = string.format('%d', now)
-- Without an entry nothing is open, whatever was counted (entries may have been deleted by hand); so it is with notes.
if length == 0 then redis.call('DEL', KEYS[3]) end
if noted == 0 then redis.call('DEL', KEYS[4]) end

local function of_task(task)
  return tonumber(redis.call('HGET', KEYS[3], task) or 0) + tonumber(redis.call('HGET', KEYS[4], task) or 0)
end

local out, refused, counts, added = {now, 0}, false, {}, {}
for i = 3, #ARGV, 3 do
  local task, most = ARGV[i], tonumber(ARGV[i + 2])
  local member = task .. '/' .. ARGV[i + 1]
  local verdict = 0
  if length + noted >= tonumber(ARGV[1]) then
    verdict = length + noted
  elseif most > 0 and of_task(task) + (counts[task] or 0) >= most then
    verdict = -of_task(task) - (counts[task] or 0)
  end
  if verdict == 0 then
    if redis.call('ZADD', KEYS[2], 'NX', now_text, member) == 1 then
      counts[task] = (counts[task] or 0) + 1
      noted = noted + 1
      added[#added + 1] = member
    end
  elseif redis.call('ZSCORE', KEYS[2], member) then
    verdict = 0
  end
  refused = refused or verdict ~= 0
  out[#out + 1] = verdict
end
if refused and ARGV[2] == '1' then
  for _, member in ipairs(added) do redis.call('ZREM', KEYS[2], member) end
  counts = {}
end
for task, n in pairs(counts) do redis.call('HINCRBY', KEYS[4], task, n) end
if refused and length > 0 then
  local oldest = redis.call('XRANGE', KEYS[1], '-', '+', 'COUNT', 1)[1][1]
  out[2] = math.max(0, now - tonumber(string.match(oldest, '^%d+')))
end
return out
