-- Reads returns of a job, or leases the right to fill it.
--
-- KEYS 1 returns, 2 lease, 3 head, 4 generation (left out in a cluster)
-- ARGV 1 generation that the keys were made with, 2 the lease to give, 3 how long it lasts in ms
--      4 what to read: all (if they have no more bytes than 5, else their names), some (the fields from 6 on;
--        with 5 other than empty only if that still stands for all names, else these)
-- Gives {"all", fields and values}, {"some", values}, {"names", names, what stands for them, bytes}, {"lease"},
-- {"miss"}, {"absent"}, {"foreign"} or {"generation"}.
if KEYS[4] and redis.call('GET', KEYS[4]) ~= ARGV[1] then return {'generation'} end
local returns, layout = KEYS[1], '1'
local mark = redis.call('HGET', returns, '\0')
if not mark then
  if redis.call('EXISTS', returns) == 1 then return {'foreign'} end
  if redis.call('HEXISTS', KEYS[3], 'a') == 1 then return {'absent'} end
  local leased = redis.pcall('SET', KEYS[2], ARGV[2], 'NX', 'PX', ARGV[3])
  if type(leased) == 'table' and leased.ok then return {'lease'} end
  return {'miss'}
end
if mark:sub(1, 1) ~= layout then return {'foreign'} end

local bytes = tonumber(redis.call('HGET', returns, '\0b') or 0)
if ARGV[4] == 'all' and bytes <= tonumber(ARGV[5]) then return {'all', redis.call('HGETALL', returns)} end
local stamp = mark .. ':' .. redis.call('HLEN', returns)
if ARGV[4] == 'all' or (ARGV[5] ~= '' and ARGV[5] ~= stamp) then
  return {'names', redis.call('HKEYS', returns), stamp, bytes}
end
local values = {}
local most = 4000 -- what a call takes in arguments
for i = 6, #ARGV, most do
  for _, value in ipairs(redis.call('HMGET', returns, unpack(ARGV, i, math.min(i + most - 1, #ARGV)))) do
    values[#values + 1] = value
  end
end
return {'some', values}
