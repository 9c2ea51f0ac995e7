#!lua flags=allow-oom
-- reap: takes over entries whose consumer has no lease, and entries that were given back
-- KEYS lane, lease, redo
-- ARGV group, worker, max, crash_limit, unregistered_ms, each: task, to
-- returns {suspects waiting, how many died, ms since the first of their leases ended or -1, the first ten that died, then entry, deliveries, attempts, crashes of each}; {-1} where the caller has no lease
-- It starts from the pending list, which is the truth, and looks at the lease in the same script, so that two
-- reapers cannot both have an entry. A death blames all that its worker held; so that no innocent neighbour is
-- dead-lettered, the last permitted run is alone: an entry one crash below the limit goes to `_suspect`, and only
-- a crash under a `.solo` consumer counts beyond that. A consumer that never took a lease is no worker of ours: its
-- entries are taken once they have lain still for unregistered_ms; 0 gives it no time at all. The suspects among
-- tasks that only workers elsewhere run are put aside for those.
local L, G, me = KEYS[1], ARGV[1], ARGV[2]
local left, limit, patience = tonumber(ARGV[3]), tonumber(ARGV[4]), tonumber(ARGV[5])
local t = redis.call('TIME')
local now = t[1] * 1000 + math.floor(t[2] / 1000)
local function base(name) return (string.gsub(name, '%.solo$', '')) end
local function alive(name)
  local ends = redis.call('ZSCORE', KEYS[2], base(name))
  return ends and tonumber(ends) >= now
end
if not alive(me) then return {-1} end
local out, suspects, died, late, named = {0, 0, 0, {}}, 0, 0, -1, {}

local function elsewhere(id)
  local entry = #ARGV > 5 and redis.call('XRANGE', L, id, id)[1]
  for j = 1, entry and #entry[2] or 0, 2 do
    for i = 6, #ARGV, 2 do
      if entry[2][j] == 'task' and entry[2][j + 1] == ARGV[i] then return ARGV[i + 1] end
    end
  end
end

local function take(id, name, deliveries)
  local attempts, crashes = string.match(redis.call('HGET', KEYS[3], id) or '0:0', '(%d+):(%d+)')
  crashes = tonumber(crashes)
  if name ~= '_returned' then
    crashes = crashes + 1
    died = died + 1
    if #named < 10 then named[#named + 1] = redis.call('XRANGE', L, id, id)[1] end
    -- The lease of one that took its leave with work left over ended at no time that could be told.
    local ends = tonumber(redis.call('ZSCORE', KEYS[2], base(name)) or '0')
    if ends > 0 then late = math.max(late, now - ends) end
    if base(name) == name then crashes = math.min(crashes, limit - 1) end
    redis.call('HSET', KEYS[3], id, attempts .. ':' .. string.format('%d', crashes))
    if crashes == limit - 1 then
      local to = elsewhere(id)
      redis.call('XCLAIM', L, G, to or '_suspect', 0, id, 'JUSTID')
      if not to then suspects = suspects + 1 end
      return
    end
  end
  local entry = redis.call('XCLAIM', L, G, me, 0, id)[1]
  if entry then
    out[#out + 1] = entry
    out[#out + 1] = deliveries + 1
    out[#out + 1] = tonumber(attempts)
    out[#out + 1] = crashes
  end
end

local consumers = {}
for _, c in ipairs(redis.call('XINFO', 'CONSUMERS', L, G)) do
  local f = {}
  for i = 1, #c, 2 do f[c[i]] = c[i + 1] end
  consumers[f['name']] = f
end

-- Whether a consumer without a lease can be taken for dead, and how long its entries must have lain still for that.
local function dead(name)
  if name == '_returned' then return true, 0 end
  if string.sub(name, 1, 1) == '_' or base(name) == me then return false, 0 end
  local ends = redis.call('ZSCORE', KEYS[2], base(name))
  if ends then return tonumber(ends) < now, 0 end
  return true, patience
end

local function forget(name)
  redis.call('XGROUP', 'DELCONSUMER', L, G, name)
  consumers[name] = nil
  local other = base(name) == name and name .. '.solo' or base(name)
  if not consumers[other] then redis.call('ZREM', KEYS[2], base(name)) end
end

local names = {}
for name in pairs(consumers) do names[#names + 1] = name end
for _, name in ipairs(names) do
  local f = consumers[name]
  local gone, still = dead(name)
  if name == '_suspect' then
    suspects = suspects + f['pending']
  elseif gone and f['pending'] > 0 and left > 0 then
    for _, x in ipairs(redis.call('XPENDING', L, G, 'IDLE', still, '-', '+', left, name)) do
      take(x[1], name, x[4])
      left = left - 1
    end
  elseif gone and f['pending'] == 0 and name ~= '_returned' and f['idle'] >= still then
    forget(name)
  end
end
-- A worker that died before it read anything has a lease and no consumer.
for _, name in ipairs(redis.call('ZRANGEBYSCORE', KEYS[2], '-inf', now, 'LIMIT', 0, 100)) do
  if not consumers[name] and not consumers[name .. '.solo'] then redis.call('ZREM', KEYS[2], name) end
end
out[1], out[2], out[3], out[4] = suspects, died, late, named
return out
