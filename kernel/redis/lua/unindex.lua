#!lua flags=allow-oom
-- unindex: takes members out of an index over jobs, unless their scores have changed since they were read
-- KEYS index
-- ARGV each: score, member
-- returns how many were taken out
local removed = 0
for i = 1, #ARGV, 2 do
  local score = redis.call('ZSCORE', KEYS[1], ARGV[i + 1])
  if score and tonumber(score) == tonumber(ARGV[i]) then
    removed = removed + redis.call('ZREM', KEYS[1], ARGV[i + 1])
  end
end
return removed
