#!lua flags=allow-oom
-- index: enters members in an index over jobs; permitted when memory is short, so that work can be finished
-- KEYS index
-- ARGV mode, each: score, member
-- returns how many there are then. Mode NX leaves those that are there as they are, CH sets their scores
for i = 2, #ARGV, 2 do redis.call('ZADD', KEYS[1], ARGV[1], ARGV[i], ARGV[i + 1]) end
return redis.call('ZCARD', KEYS[1])
