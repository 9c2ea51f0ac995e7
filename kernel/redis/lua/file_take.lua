#!lua flags=allow-oom
-- file_take: moves file jobs from the queues onto the worker's processing list
-- KEYS heartbeat, processing, suspects, queues
-- ARGV max, low, turn, each: most
-- returns {suspects waiting, error or '', then the number of the queue from 0 and the job of each}; {-1} without a heartbeat
-- All queues follow as keys, the highest first, each with how many it may give at the most. Up to `low` jobs are first
-- taken from all queues but the first, one each in turn, beginning with number `turn` of those; then the higher goes
-- before the lower. What a queue has waited longest for comes first. A queue that is no list is passed over.
if redis.call('EXISTS', KEYS[1]) == 0 then return {-1} end
local FIRST = 4
local left, queues = tonumber(ARGV[1]), #KEYS - FIRST + 1
local out, open, most = {redis.call('LLEN', KEYS[3]), ''}, {}, {}
for i = 1, queues do open[i], most[i] = true, tonumber(ARGV[3 + i]) end

local function take(i)
  if left == 0 or not open[i] or most[i] == 0 then return false end
  local job = redis.pcall('LMOVE', KEYS[FIRST + i - 1], KEYS[2], 'RIGHT', 'LEFT')
  if type(job) ~= 'string' then
    if job then out[2] = job.err end
    open[i] = false
    return false
  end
  left, most[i] = left - 1, most[i] - 1
  out[#out + 1] = i - 1
  out[#out + 1] = job
  return true
end

local low, at, vain = tonumber(ARGV[2]), tonumber(ARGV[3]), 0
while low > 0 and vain < queues - 1 do
  if take(2 + at % (queues - 1)) then low, vain = low - 1, 0 else vain = vain + 1 end
  at = at + 1
end
for i = 1, queues do
  while take(i) do end
end
return out
