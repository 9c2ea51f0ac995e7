#!lua flags=allow-oom
-- relist: enters jobs in the indexes by state as their records stand, and takes out those that have no record
-- KEYS states
-- ARGV each: job
-- returns the state of each, or '' where there is no record. Job is the key of the record
-- include whole
-- include listed
local out = {}
for i, key in ipairs(ARGV) do
  local id = string.sub(key, 5)
  local kept = redis.call('HGET', KEYS[1] .. '-tenants', id)
  local h = redis.pcall('HMGET', key, 'status', 'tenant', 'created_ts')
  local status = not h.err and h[1]
  if status then
    -- What was entered under another tenant, or under none, leaves those indexes first.
    if (kept or '') ~= (h[2] or '') then
      listed(KEYS[1], id, kept, 0, '')
      redis.call('HDEL', KEYS[1] .. '-tenants', id)
    end
    listed(KEYS[1], id, h[2], whole(h[3]), status)
  else
    listed(KEYS[1], id, kept, 0, '')
    if kept then redis.call('HDEL', KEYS[1] .. '-tenants', id) end
  end
  out[i] = status or ''
end
return out
