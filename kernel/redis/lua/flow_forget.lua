#!lua flags=allow-oom
-- flow_forget: removes a run that ended long enough ago, with everything that is kept of it
-- KEYS flow, timeline, snapshot, steps, logs, runs, ended, tenants, early
-- ARGV run, ended_before_ms, tenant, each: entry
-- returns 1 removed | 0 it runs, or ended later
-- Entries are those of the run in the index of its flow.
local h = redis.call('HMGET', KEYS[1], 'rev', 'ended')
if h[1] and (not h[2] or tonumber(h[2]) > tonumber(ARGV[2])) then return 0 end
for i = 4, #ARGV do redis.call('XDEL', KEYS[6], ARGV[i]) end
redis.call('UNLINK', KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[9])
redis.call('ZREM', KEYS[7], ARGV[1])
if ARGV[3] ~= '' then redis.call('SREM', KEYS[8], ARGV[3]) end
return 1
