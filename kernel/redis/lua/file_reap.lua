#!lua flags=allow-oom
-- file_reap: looks at one worker of file jobs and, where it is dead, moves what it held back, the oldest first
-- KEYS workers, heartbeat, processing, solo, crashes, suspects, dead_letters, queue
-- ARGV worker, ttl_ms, max, crash_limit, each: priority
-- returns {ms since it was last alive (0 unknown) or -1 where it is not dead, entries left, jobs, then of each queue:
--   moved back, to be run alone, dead letters}
-- Jobs are pairs: the place of a queue, from 0, and the id of a job that was moved there; of the first 20 alone.
-- All queues follow as keys, each with its priority, the default one last. A worker is dead when its heartbeat is
-- absent and it was last known to be alive more than ttl_ms ago; both are asked in the step that moves. One that never
-- registered itself is registered here, half a millisecond marking it as such: it may set its heartbeat after it took
-- a job and delete it after each, so it is known to be alive by every look that finds one.
-- A death blames all that the worker held, each job once, however many copies of it were held. The last permitted run
-- is alone, so that no innocent neighbour is a dead letter: one crash below the limit a job is a suspect, and only a
-- crash on the list `solo` counts beyond that.
-- An entry is pushed before it is popped: where its destination is no list it stays, behind those not yet looked at.
local worker, ttl, left, limit = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4])
local FIRST = 8
local t = redis.call('TIME')
local now = t[1] * 1000 + math.floor(t[2] / 1000)
local held = redis.call('LLEN', KEYS[3]) + redis.call('LLEN', KEYS[4])
local known = tonumber(redis.call('ZSCORE', KEYS[1], worker) or nil)
local foreign = not known or known % 1 > 0

local function register()
  redis.call('ZADD', KEYS[1], string.format(foreign and '%d.5' or '%d', now), worker)
end

if redis.call('EXISTS', KEYS[2]) == 1 then
  if foreign then register() end
  return {-1, held, {}}
end
if foreign and held == 0 then
  redis.call('ZREM', KEYS[1], worker)
  return {-1, 0, {}}
end
if not known or known > now + 1 then -- or the clock of the server went back
  register()
  return {-1, held, {}}
end
if known + ttl >= now then return {-1, held, {}} end

local MOST_NAMED, LONGEST_NAME = 20, 128
local named = {}
local by_name, by_priority, out = {}, {}, {known > 0 and math.floor(now - known) or 0, 0, named}
for i = FIRST, #KEYS do
  by_name[KEYS[i]] = i
  by_priority[ARGV[i - FIRST + 5]] = i
  for j = 1, 3 do out[#out + 1] = 0 end
end

-- The queue of a job, and its id if it says one.
local function read(job)
  local good, members = pcall(cjson.decode, job)
  if not good or type(members) ~= 'table' then return #KEYS end
  local id = type(members['id']) == 'string' and members['id']
  local function found(map, key) return type(key) == 'string' and map[key] end
  return found(by_name, members['origin_queue']) or found(by_priority, members['priority']) or #KEYS, id
end

-- Where a job goes: its destination, which of the counts of its queue that is, and its crashes.
local before = {}
local function verdict(job, name, queue, alone)
  before[name] = before[name] or tonumber(redis.call('HGET', KEYS[5], name) or '0')
  local crashes = before[name] + 1
  if not alone then crashes = math.min(crashes, limit - 1) end
  if crashes >= limit then return KEYS[7], 2, crashes end
  if crashes == limit - 1 then return KEYS[6], 1, crashes end
  return KEYS[queue], 0, crashes
end

local function take(list, alone)
  for _ = 1, math.min(left, redis.call('LLEN', list)) do
    left = left - 1
    local job = redis.call('LINDEX', list, -1)
    local queue, id = read(job)
    local name = redis.sha1hex(job)
    local to, kind, crashes = verdict(job, name, queue, alone)
    if type(redis.pcall('LPUSH', to, job)) == 'number' then
      redis.call('RPOP', list)
      held = held - 1
      if id and #named < 2 * MOST_NAMED then
        named[#named + 1] = queue - FIRST
        named[#named + 1] = string.sub(id, 1, LONGEST_NAME)
      end
      local place = 3 * (queue - FIRST) + 4 + kind
      out[place] = out[place] + 1
      if kind == 2 then
        redis.call('HDEL', KEYS[5], name)
      else
        redis.call('HSET', KEYS[5], name, string.format('%d', crashes))
      end
    else
      redis.call('LMOVE', list, list, 'RIGHT', 'LEFT')
    end
  end
end

take(KEYS[4], true)
take(KEYS[3], false)
-- The counts of jobs that others complete are never deleted; a week without a death ends them all.
redis.call('EXPIRE', KEYS[5], 7 * 86400)
if held == 0 then redis.call('ZREM', KEYS[1], worker) end
out[2] = held
return out
