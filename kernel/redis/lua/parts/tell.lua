-- Adds an event to a stream. A foreign key of its name that takes no events would leave the job without its end.
local function tell(events, ...)
  local added = redis.pcall('XADD', events, '*', ...)
  if type(added) == 'table' and added.err then
    redis.call('DEL', events)
    redis.call('XADD', events, '*', ...)
  end
end
