-- This is before each script.

-- young says whether the generation is younger than the guard: what was known of facts on their way to the
-- durable store went with the one before. It begins with its time in ms, to the base of 36.
local function young(generation, guard)
  if guard <= 0 then return false end
  local now = redis.call('TIME')
  return now[1] * 1000 + now[2] / 1000 < (tonumber(generation:sub(1, 8), 36) or 0) + guard
end

-- miss is the answer for what is not there, with a lease if nobody has one.
local function miss(key, generation, lease, lasts, guard)
  if young(generation, guard) then return {'miss'} end
  -- Without room, or on a replica, there is no lease, and nothing is filled.
  local leased = redis.pcall('SET', key, lease, 'NX', 'PX', lasts)
  if type(leased) == 'table' and leased.ok then return {'lease'} end
  return {'miss'}
end

