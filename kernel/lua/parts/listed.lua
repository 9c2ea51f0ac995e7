-- Moves a job from the index of its state to that of another, and between those of state and tenant. A job that is not
-- where the record says it was is taken out of all; '' says that it is new, and a state that is not known has no index.
-- The tenant is kept beside the indexes: they outlive the record, which may expire by itself.
local STATES = {queued = 1, running = 1, done = 1, partial = 1, error = 1, canceled = 1}
local function listed(index, id, tenant, created, from, to)
  if tenant == '' then tenant = false end
  local new = from == ''
  if STATES[from] and from == to and redis.call('ZSCORE', index .. ':' .. to, id) then return end
  if STATES[from] and from ~= to and redis.call('ZREM', index .. ':' .. from, id) == 1 then
    if tenant then redis.call('ZREM', index .. ':' .. from .. ':' .. tenant, id) end
  elseif not new then
    new = true
    for state in pairs(STATES) do
      redis.call('ZREM', index .. ':' .. state, id)
      if tenant then redis.call('ZREM', index .. ':' .. state .. ':' .. tenant, id) end
    end
  end
  if not STATES[to] then return end
  redis.call('ZADD', index .. ':' .. to, created, id)
  if tenant then
    redis.call('ZADD', index .. ':' .. to .. ':' .. tenant, created, id)
    if new then redis.call('HSET', index .. ':tenants', id, tenant) end
  end
end
