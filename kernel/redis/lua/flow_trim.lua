#!lua flags=allow-oom
-- flow_trim: shortens the timeline of a run that has ended, and takes references to what is gone out of its log index
-- KEYS flow, timeline, logs
-- ARGV max_len, archived, max
-- returns {events removed, references looked at and removed}; both are 0 once there is nothing more to do
-- Archived is 1 where the run was written down as a whole. A reference names its line as "id":"ms-seq"; references have
-- the order of the timeline, so those to what is gone are the first ones.
if not redis.call('HGET', KEYS[1], 'ended') then return {0, 0} end
if ARGV[2] == '1' then redis.call('HSET', KEYS[1], 'archived', '1') end
local removed = redis.call('XTRIM', KEYS[2], 'MAXLEN', '=', ARGV[1])
local first = redis.call('XRANGE', KEYS[2], '-', '+', 'COUNT', 1)[1]
local ms, seq = string.match(first and first[1] or '', '(%d+)-(%d+)')
ms, seq = tonumber(ms), tonumber(seq)
local gone = {}
for _, entry in ipairs(redis.call('XRANGE', KEYS[3], '-', '+', 'COUNT', ARGV[3])) do
  local data = ''
  for i = 1, #entry[2], 2 do if entry[2][i] == 'data' then data = entry[2][i + 1] end end
  local to_ms, to_seq = string.match(data, '"id":"(%d+)-(%d+)"')
  to_ms, to_seq = tonumber(to_ms), tonumber(to_seq)
  if ms and to_ms and (to_ms > ms or (to_ms == ms and to_seq >= seq)) then break end
  gone[#gone + 1] = entry[1]
end
if #gone > 0 then redis.call('XDEL', KEYS[3], unpack(gone)) end
return {removed, #gone}
