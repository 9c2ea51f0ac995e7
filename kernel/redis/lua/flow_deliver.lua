#!lua
-- flow_deliver: an event or a webhook opens the gates that wait for its channel and key, or is kept for the next one
-- KEYS flow, free, guarded, parked, answer, due, wake
-- ARGV digest, delivery, opens, run, step_key, parks, max_parked, keep_ms, max, answer_ms
-- returns {gates released, 1 parked | 0, 1 refused | 0, 1 more gates wait | 0}
-- Flow and parked are what the keys of orders, and of streams of early deliveries, begin with. Opens: any (all gates of
-- this channel and key) | none (those that need no secret) | the SHA-256 of a secret, which opens the gate that run
-- and step_key name. What was done is kept, so that a repetition of the call delivers nothing again; what names another
-- channel and key than the call did at first is refused.
local D, opens, owner = ARGV[1], ARGV[3], ARGV[4] .. '/' .. ARGV[5]
local known = redis.call('GET', KEYS[5])
if known then
  local told = cmsgpack.unpack(known)
  return told[5] == D and {told[1], told[2], told[3], told[4]} or {0, 0, 1, 0}
end
local t = redis.call('TIME')
local now = string.format('%d', t[1] * 1000 + math.floor(t[2] / 1000))
local released, parked, refused, more = 0, 0, 0, 0

-- A gate waits only while its run's order says so: what settles it takes that out in the same step.
local function release(flow_id, step)
  local F = KEYS[1] .. flow_id
  local h = redis.call('HMGET', F, 'wait:' .. step, 'ended')
  if h[1] ~= D then return end
  redis.call('HDEL', F, 'wait:' .. step)
  if h[2] or redis.call('HSETNX', F, 'hit:' .. step, ARGV[2]) == 0 then return end
  redis.call('HINCRBY', F, 'rev', 1)
  redis.call('ZADD', KEYS[6], now, flow_id)
  released = released + 1
end

local left = tonumber(ARGV[9])
local function release_all(waiting)
  if left == 0 then return end
  local members = redis.call('ZRANGE', waiting, 0, left - 1)
  for _, member in ipairs(members) do
    redis.call('ZREM', waiting, member)
    release(string.match(member, '^(.*)/(.*)$'))
  end
  left = left - #members
end

if opens == 'any' or opens == 'none' then
  release_all(KEYS[2])
  if opens == 'any' then release_all(KEYS[3]) end
  local rest = redis.call('ZCARD', KEYS[2]) + (opens == 'any' and redis.call('ZCARD', KEYS[3]) or 0)
  more = rest > 0 and 1 or 0
  if opens == 'none' and more == 0 and released == 0 and redis.call('ZCARD', KEYS[3]) > 0 then refused = 1 end
else
  local waits = redis.call('HGET', KEYS[1] .. ARGV[4], 'wait:' .. ARGV[5])
  if waits == D then
    redis.call('ZREM', KEYS[2], owner)
    redis.call('ZREM', KEYS[3], owner)
    release(ARGV[4], ARGV[5])
  elseif waits then
    refused = 1
  end
end

if released > 0 then
  redis.pcall('XADD', KEYS[7], 'MAXLEN', 1, '*', 'flow', ARGV[4])
elseif more == 0 and refused == 0 and ARGV[6] == '1' then
  local shared = opens == 'any' or opens == 'none'
  local stream = KEYS[4] .. (shared and D .. ':' .. opens or opens)
  redis.call('XTRIM', stream, 'MINID', string.format('%d', math.max(0, now - ARGV[8])))
  -- Of many senders the last deliveries are kept. With a secret the first one for a channel and key is, and no more
  -- than ten are: whoever has it does not know the key.
  local there, full = false, false
  if not shared then
    local held = redis.call('XRANGE', stream, '-', '+', 'COUNT', 10)
    for _, entry in ipairs(held) do there = there or entry[2][2] == D end
    full = not there and #held == 10
  end
  if not there and not full then
    redis.call('XADD', stream, 'MAXLEN', ARGV[7], '*', 'digest', D, 'delivery', ARGV[2])
    redis.call('PEXPIRE', stream, ARGV[8])
  end
  if full then refused = 1 else parked = 1 end
elseif more == 0 then
  refused = 1
end
-- A later turn that finds no gate any more is kept too: a repetition must not find one that was placed since.
if opens == 'any' or released + parked + more > 0 then
  redis.call('SET', KEYS[5], cmsgpack.pack({released, parked, refused, more, D}), 'PX', ARGV[10])
end
return {released, parked, refused, more}
