#!lua flags=allow-oom
-- gone: tells which entries a stream does not have any more
-- KEYS stream
-- ARGV each: entry
-- returns those that are gone
local out = {}
for i = 1, #ARGV do
  if #redis.call('XRANGE', KEYS[1], ARGV[i], ARGV[i]) == 0 then out[#out + 1] = ARGV[i] end
end
return out
