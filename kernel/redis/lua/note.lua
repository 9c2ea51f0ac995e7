#!lua flags=allow-oom
-- note: notes that the ends of jobs are to be published, before the scripts that end them in the same pipeline
-- KEYS unpublished
-- ARGV each: job_id
-- returns how many were not noted yet
local t = redis.call('TIME')
local now = string.format('%d', t[1] * 1000 + math.floor(t[2] / 1000))
local notes = {}
for i, id in ipairs(ARGV) do
  notes[2 * i - 1] = now
  notes[2 * i] = id
end
return redis.call('ZADD', KEYS[1], unpack(notes))
