#!lua
-- publish: adds tasks of a job to its lane and, with the last of them, takes the job out of the outbox
-- KEYS lane, outbox, job
-- ARGV job_id, last, traceparent, each: payload
-- returns how many were added, or -1 where the job is not in the outbox: somebody has published it
if not redis.call('ZSCORE', KEYS[2], ARGV[1]) then return -1 end
local id
for i = 4, #ARGV do
  -- `ledger` tells the claim that the job has a record: a missing one was pruned and is not created again.
  if ARGV[3] == '' then
    id = redis.call('XADD', KEYS[1], '*', 'payload', ARGV[i], 'ledger', '1')
  else
    id = redis.call('XADD', KEYS[1], '*', 'payload', ARGV[i], 'ledger', '1', 'traceparent', ARGV[3])
  end
end
if ARGV[2] == '1' then
  redis.call('ZREM', KEYS[2], ARGV[1])
  -- The audit looks for its entries up to this time.
  if id and redis.call('EXISTS', KEYS[3]) == 1 then
    redis.call('HSET', KEYS[3], 'published', string.match(id, '^%d+'))
  end
end
return #ARGV - 3
