#!lua flags=allow-oom
-- republish: adds resources of an open job to its lane again, whose entries are gone
-- KEYS job, lane
-- ARGV published, updated_ms, each: payload, lost
-- returns how many were added; 0 where the job has ended, or has had news since it was looked at
-- Lost is 1 where nobody has the bytes of a resource any more: whoever claims it ends it. Permitted when memory is short.
local h = redis.call('HMGET', KEYS[1], 'status', 'published', 'updated_ts')
if (h[1] ~= 'queued' and h[1] ~= 'running') or (h[2] or '') ~= ARGV[1] or h[3] ~= ARGV[2] then return 0 end
local id
for i = 3, #ARGV, 2 do
  -- `ledger` tells the claim that the job has a record: a missing one was pruned and is not created again.
  local fields = {'payload', ARGV[i], 'ledger', '1'}
  if ARGV[i + 1] == '1' then
    fields[5], fields[6] = 'lost', '1'
  end
  id = redis.call('XADD', KEYS[2], '*', unpack(fields))
end
redis.call('HSET', KEYS[1], 'published', string.match(id, '^%d+'))
return (#ARGV - 2) / 2
