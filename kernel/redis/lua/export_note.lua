#!lua flags=allow-oom
-- export_note: how far an exporter has come, and that it is there: retention does not overtake it then
-- KEYS cursors
-- ARGV position, epoch, denied position, denied epoch
-- returns {position, epoch} as they stand then
-- A higher epoch counts, else the greater position, so that exporters that race or come late put nothing back.
-- What is denied does not count: an exporter has looked for it in the lake, and it is of another one.
local h = redis.call('HMGET', KEYS[1], 'exporter', 'exporter:epoch')
local position, epoch = ARGV[1], tonumber(ARGV[2])
local ms, seq = string.match(h[1] or '', '^(%d+)-(%d+)$')
local before = tonumber(h[2] or '') or 0
local denied = h[1] == ARGV[3] and before == tonumber(ARGV[4])
if ms and before >= epoch and not denied then
  local to_ms, to_seq = string.match(position, '(%d+)-(%d+)')
  ms, seq, to_ms, to_seq = tonumber(ms), tonumber(seq), tonumber(to_ms), tonumber(to_seq)
  if before > epoch or ms > to_ms or (ms == to_ms and seq > to_seq) then position, epoch = h[1], before end
end
local t = redis.call('TIME')
local seen = string.format('%d', t[1] * 1000 + math.floor(t[2] / 1000))
redis.call('HSET', KEYS[1], 'exporter', position, 'exporter:epoch', string.format('%d', epoch), 'exporter:seen', seen)
return {position, epoch}
