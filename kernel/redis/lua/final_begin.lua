#!lua flags=allow-oom
-- final_begin: gives the finalization of a job to a worker, or renews its hold
-- KEYS job
-- ARGV worker, lease_ms
-- returns {1, generation, status} it is the worker's | {0, ms to wait, status} another holds it | {2, 0, status} nothing to do
local h = redis.call('HMGET', KEYS[1], 'status', 'fin', 'fin_until', 'fin_gen')
if not h[1] then return {2, 0, 'gone'} end
if h[1] ~= 'running' and h[1] ~= 'queued' or not h[2] or h[2] == '' then return {2, 0, h[1]} end
local t = redis.call('TIME')
local now = t[1] * 1000 + math.floor(t[2] / 1000)
local held = tonumber(h[3] or 0)
if h[2] ~= 'due' and h[2] ~= ARGV[1] and held > now then return {0, held - now, h[1]} end
local generation = tonumber(h[4] or 0)
if h[2] ~= ARGV[1] then generation = generation + 1 end
redis.call('HSET', KEYS[1], 'fin', ARGV[1], 'fin_until', string.format('%d', now + tonumber(ARGV[2])), 'fin_gen', generation)
return {1, generation, h[1]}
