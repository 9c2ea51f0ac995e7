#!lua
-- publish_once: adds a task to its lane unless one was added under the same name before; names live for keep_ms
-- KEYS lane, replays
-- ARGV once, keep_ms, recorded, traceparent, payload
-- returns 1 added, 0 it had been added before
local t = redis.call('TIME')
local now = t[1] * 1000 + math.floor(t[2] / 1000)
for _, old in ipairs(redis.call('ZRANGEBYSCORE', KEYS[2], '-inf', now - tonumber(ARGV[2]), 'LIMIT', 0, 100)) do
  redis.call('ZREM', KEYS[2], old)
end
if redis.call('ZADD', KEYS[2], 'NX', string.format('%d', now), ARGV[1]) == 0 then return 0 end
local entry = {'payload', ARGV[5]}
-- `ledger` tells the claim that the job has a record: a missing one was pruned and is not created again.
if ARGV[3] == '1' then entry[#entry + 1] = 'ledger'; entry[#entry + 1] = '1' end
if ARGV[4] ~= '' then entry[#entry + 1] = 'traceparent'; entry[#entry + 1] = ARGV[4] end
redis.call('XADD', KEYS[1], '*', unpack(entry))
return 1
