#!lua
-- submit_begin: decides what a submit under an idempotency key does
-- KEYS submit
-- ARGV digest, job_id, lease_ms, window_ms
-- returns {state, job id, ms to wait, answer}; state: new | taken_over | running | done | conflict | foreign
-- A string under the key is the job id that another gateway put there: foreign.
if redis.call('TYPE', KEYS[1])['ok'] == 'string' then return {'foreign', redis.call('GET', KEYS[1]), 0, ''} end
local h = redis.call('HMGET', KEYS[1], 'digest', 'job_id', 'until', 'answer', 'by')
local t = redis.call('TIME')
local now = t[1] * 1000 + math.floor(t[2] / 1000)
local lease = string.format('%d', now + tonumber(ARGV[3]))
if not h[2] then
  redis.call('HSET', KEYS[1], 'digest', ARGV[1], 'job_id', ARGV[2], 'until', lease, 'by', ARGV[2])
  redis.call('PEXPIRE', KEYS[1], ARGV[4])
  return {'new', ARGV[2], 0, ''}
end
if h[1] ~= ARGV[1] then return {'conflict', h[2], 0, ''} end
if h[4] then return {'done', h[2], 0, h[4]} end
local mine = h[5] == ARGV[2]  -- the same call again, after a lost reply
if not mine and tonumber(h[3]) > now then return {'running', h[2], tonumber(h[3]) - now, ''} end
redis.call('HSET', KEYS[1], 'until', lease, 'by', ARGV[2])
redis.call('PEXPIRE', KEYS[1], ARGV[4])
return {h[2] == ARGV[2] and 'new' or 'taken_over', h[2], 0, ''}
