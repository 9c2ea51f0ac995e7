-- Enters a job in the index of states, and in that of its tenant, or takes it out of both where the state is not known.
-- A score is the place of the state, times 2^42, and when the job was accepted, in ms: so a move is one command, from
-- wherever the job was. The tenant is kept beside the indexes: they outlive the record, which may expire by itself.
local STATES = {queued = 1, running = 2, done = 3, partial = 4, error = 5, canceled = 6}
local function listed(index, id, tenant, created, to)
  local place = STATES[to]
  if tenant == '' then tenant = false end
  if not place then
    redis.call('ZREM', index, id)
    if tenant then redis.call('ZREM', index .. ':' .. tenant, id) end
    return
  end
  local score = place * 4398046511104 + math.max(0, math.min(tonumber(created) or 0, 4398046511103))
  local new = redis.call('ZADD', index, score, id) == 1
  if tenant then
    redis.call('ZADD', index .. ':' .. tenant, score, id)
    if new then redis.call('HSET', index .. '-tenants', id, tenant) end
  end
end
