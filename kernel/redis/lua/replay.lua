#!lua flags=allow-oom
-- replay: opens a failed resource again and raises its fence, so that no earlier run can settle it
-- KEYS job, events, bits, resources, states, unpublished
-- ARGV resource_id, index, expected_replay, max_replays, step, resource_json
-- returns {outcome, number of the replay}; outcome: replayed | already_replayed (publish it again, that is harmless) |
--   not_failed | too_many_replays | canceled | gone. max_replays 0 waives the cap
-- include listed
local J, E, B, R = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local id, index = ARGV[1], tonumber(ARGV[2])
local h = redis.call('HMGET', J, 'status', 'resource_total', 'resource_failed', 'direct', 'replays', 'rev', 'tenant', 'created_ts')
if not h[1] then return {'gone', 0} end
local total = tonumber(h[2] or 0)
local one = total == 1 and h[4] ~= '1'
local number = tonumber(one and h[5] or redis.call('HGET', R, 'p:' .. id) or 0)
if h[1] == 'canceled' then return {'canceled', number} end
if number > tonumber(ARGV[3]) then return {'already_replayed', number} end
local failed = one and h[3] == '1' or not one and redis.call('HEXISTS', R, 'x:' .. id) == 1
if not failed then return {'not_failed', number} end
if tonumber(ARGV[4]) > 0 and number >= tonumber(ARGV[4]) then return {'too_many_replays', number} end
number = number + 1
local fence = string.format('%d', number * 1048576)
local mended = not one and redis.call('HGET', R, 'x:' .. id)
if one then
  redis.call('HSET', J, 'replays', number, 'fence', fence)
else
  redis.call('HDEL', R, 'x:' .. id, 's:' .. id)
  redis.call('HSET', R, 'p:' .. id, number, 'f:' .. id, fence)
  if index > 0 and h[4] ~= '1' and index <= total then redis.call('SETBIT', B, index - 1, 0) end
end
local t = redis.call('TIME')
local now = string.format('%d', t[1] * 1000 + math.floor(t[2] / 1000))
-- The last error goes with its failure. Another one that stands is told then, if a look at some thousand finds it.
if h[3] == '1' or mended == redis.call('HGET', J, 'error') then
  local cursor, stands, looks = '0', nil, 0
  while h[3] ~= '1' and not stands and looks < 20 and (looks == 0 or cursor ~= '0') do
    local page = redis.call('HSCAN', R, cursor, 'MATCH', 'x:*', 'COUNT', 100)
    cursor, stands, looks = page[1], page[2][2], looks + 1
  end
  redis.call('HSET', J, 'error', stands or '')
end
redis.call('HSET', J, 'status', 'running', 'updated_ts', now, 'resource_failed', tonumber(h[3]) - 1, 'fin', '',
  'rev', tonumber(h[6] or 1) + 1)
listed(KEYS[5], string.sub(J, 5), h[7], h[8], 'running')
redis.call('ZADD', KEYS[6], now, string.sub(J, 5))
redis.call('XADD', E, '*', 'type', 'replayed', 'ts', now, 'step', ARGV[5], 'data',
  '{"resource_id":' .. ARGV[6] .. ',"replay":' .. number .. '}')
return {'replayed', number}
