#!lua flags=allow-oom
-- task_events: adds the events that a running attempt reports, each once
-- KEYS job, events
-- ARGV token, step, first, each: type, data
-- returns 1, or 0 where the attempt is over: fenced, canceled or ended
-- The events are numbered from 1 within an attempt; those that were added before are left out.
-- include tell
local E = KEYS[2]
local h = redis.call('HMGET', KEYS[1], 'status', 'fence', 'told')
if h[1] ~= 'running' or (h[2] or '1') ~= ARGV[1] then return 0 end
local token, told = string.match(h[3] or '', '^(%d+):(%d+)$')
told = token == ARGV[1] and tonumber(told) or 0
local t = redis.call('TIME')
local now = string.format('%d', t[1] * 1000 + math.floor(t[2] / 1000))
local number = tonumber(ARGV[3])
for i = 4, #ARGV, 2 do
  if number > told then
    tell(E, 'type', ARGV[i], 'ts', now, 'step', ARGV[2], 'data', ARGV[i + 1])
    told = number
  end
  number = number + 1
end
redis.call('HSET', KEYS[1], 'told', ARGV[1] .. ':' .. string.format('%d', told))
return 1
