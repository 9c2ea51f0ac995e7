#!lua flags=allow-oom
-- append: adds messages to a stream, one entry each; permitted when memory is short, so that work can be finished
-- KEYS stream
-- ARGV each: payload
-- returns the id of the last entry
local id
for i = 1, #ARGV do id = redis.call('XADD', KEYS[1], '*', 'payload', ARGV[i]) end
return id
