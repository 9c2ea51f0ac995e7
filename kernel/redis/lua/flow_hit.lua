#!lua
-- flow_hit: keeps what opens a gate that is not placed yet
-- KEYS flow, due, wake
-- ARGV run, step_key, fence, delivery
-- returns {1 kept | 0 another revision, ended, gone, or something else came first; revision}
local F, hit = KEYS[1], 'hit:' .. ARGV[2]
local h = redis.call('HMGET', F, 'rev', 'ended', hit)
local rev = tonumber(h[1] or 0)
if not h[1] or h[2] or h[3] or h[1] ~= ARGV[3] then return {0, rev} end
local t = redis.call('TIME')
redis.call('HSET', F, hit, ARGV[4], 'rev', string.format('%d', rev + 1))
redis.call('ZADD', KEYS[2], string.format('%d', t[1] * 1000 + math.floor(t[2] / 1000)), ARGV[1])
redis.pcall('XADD', KEYS[3], 'MAXLEN', 1, '*', 'flow', ARGV[1])
return {1, rev + 1}
