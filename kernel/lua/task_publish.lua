#!lua flags=allow-oom
-- task_publish: puts accepted task jobs on the queue and takes them out of the outbox, together
-- KEYS stream, outbox, open
-- ARGV each: task, job_id, payload, traceparent, flow
-- returns 1 added | 0 it is not in the outbox (any more), for each
-- Permitted when memory is short: what was admitted is finished.
local out = {}
for i = 1, #ARGV, 5 do
  local task, job_id, parent, flow = ARGV[i], ARGV[i + 1], ARGV[i + 3], ARGV[i + 4]
  local added = redis.call('ZREM', KEYS[2], task .. '/' .. job_id)
  if added == 1 then
    if flow ~= '' then
      redis.call('XADD', KEYS[1], '*', 'job_id', job_id, 'task', task, 'payload', ARGV[i + 2], 'ledger', '1',
        'flow', flow, unpack(parent == '' and {} or {'traceparent', parent}))
    elseif parent == '' then
      redis.call('XADD', KEYS[1], '*', 'job_id', job_id, 'task', task, 'payload', ARGV[i + 2], 'ledger', '1')
    else
      redis.call('XADD', KEYS[1], '*', 'job_id', job_id, 'task', task, 'payload', ARGV[i + 2], 'ledger', '1',
        'traceparent', parent)
    end
    redis.call('HINCRBY', KEYS[3], task, 1)
  end
  out[#out + 1] = added
end
return out
