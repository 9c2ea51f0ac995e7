#!lua flags=allow-oom
-- delete: removes an ended job and all that belongs to it
-- KEYS job, events, bits, resources, results, states
-- ARGV ended_before_ms
-- returns 1 removed (or not there), 0 it is open, or ended later than that
-- include listed
local id = string.sub(KEYS[1], 5)
local h = redis.call('HMGET', KEYS[1], 'status', 'updated_ts')
if h[1] == 'queued' or h[1] == 'running' then return 0 end
if h[1] and tonumber(h[2]) >= tonumber(ARGV[1]) then return 0 end
redis.call('UNLINK', unpack(KEYS, 1, 5))
listed(KEYS[6], id, redis.call('HGET', KEYS[6] .. '-tenants', id), 0, '')
redis.call('HDEL', KEYS[6] .. '-tenants', id)
return 1
