#!lua flags=allow-oom
-- flow_wait: has a placed gate wait for its deliveries, or gives it the oldest one that came before it
-- KEYS flow, free, guarded, parked, due, wake
-- ARGV run, step_key, fence, digest, open, keep_ms
-- returns {waits | hit | conflict (another revision, ended, or gone), revision}
-- Free and guarded: the gates of this channel and key that open without a secret (open is 1), and the others. Parked is
-- what the keys of the streams of early deliveries begin with. Permitted when memory is short: accepted runs go on.
local F, S, D = KEYS[1], ARGV[2], ARGV[4]
local h = redis.call('HMGET', F, 'rev', 'ended', 'hit:' .. S, 'secrets:' .. S)
local rev = tonumber(h[1] or 0)
if not h[1] or h[2] or h[1] ~= ARGV[3] then return {'conflict', rev} end
if h[3] then return {'hit', rev} end
local t = redis.call('TIME')
local now = t[1] * 1000 + math.floor(t[2] / 1000)

-- The first entry of a stream that was meant for this channel and key. Streams of single secrets may have others.
local since = string.format('%d', math.max(0, now - ARGV[6]))
local best
local function look(stream, most)
  for _, entry in ipairs(redis.call('XRANGE', stream, since, '+', 'COUNT', most)) do
    if entry[2][2] == D then
      local ms, seq = string.match(entry[1], '(%d+)-(%d+)')
      ms, seq = tonumber(ms), tonumber(seq)
      if not best or ms < best.ms or (ms == best.ms and seq < best.seq) then
        best = {ms = ms, seq = seq, id = entry[1], stream = stream, delivery = entry[2][4]}
      end
      return
    end
  end
end
look(KEYS[4] .. D .. ':any', 1)
if ARGV[5] == '1' then look(KEYS[4] .. D .. ':none', 1) end
for secret in string.gmatch(h[4] or '', '%S+') do look(KEYS[4] .. secret, 10) end

if not best then
  -- First, as it may fail for a foreign key of that name: what the order says is believed.
  redis.call('ZADD', KEYS[ARGV[5] == '1' and 2 or 3], 'NX', now, ARGV[1] .. '/' .. S)
  redis.call('HSET', F, 'wait:' .. S, D)
  return {'waits', rev}
end
redis.call('XDEL', best.stream, best.id)
if redis.call('XLEN', best.stream) == 0 then redis.call('DEL', best.stream) end
redis.call('HDEL', F, 'wait:' .. S)
redis.call('HSET', F, 'hit:' .. S, best.delivery, 'rev', string.format('%d', rev + 1))
redis.call('ZADD', KEYS[5], string.format('%d', now), ARGV[1])
redis.pcall('XADD', KEYS[6], 'MAXLEN', 1, '*', 'flow', ARGV[1])
return {'hit', rev + 1}
