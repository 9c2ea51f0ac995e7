#!lua flags=allow-oom
-- flow_secret: notes the SHA-256 of one more secret that opens a gate
-- KEYS flow
-- ARGV step_key, secret, max
-- returns 1 it opens the gate | 0 there is no such run
-- Beyond max the oldest goes, but never the first, which StartFlow has told. Permitted when memory is short: a run that
-- was accepted goes on.
local field = 'secrets:' .. ARGV[1]
if redis.call('EXISTS', KEYS[1]) == 0 then return 0 end
local all = {}
for secret in string.gmatch(redis.call('HGET', KEYS[1], field) or '', '%S+') do
  if secret == ARGV[2] then return 1 end
  all[#all + 1] = secret
end
if #all >= tonumber(ARGV[3]) then table.remove(all, 2) end
all[#all + 1] = ARGV[2]
redis.call('HSET', KEYS[1], field, table.concat(all, ' '))
return 1
