-- Reads returns of a job, or leases the right to fill it.
--
-- KEYS 1 returns, 2 lease, 3 head, 4 generation (left out in a cluster)
-- ARGV 1 generation that the keys were made with, 2 the lease to give, 3 how long it lasts in ms, 4 guard in ms
--      5 what to read: all (if they have no more bytes than 6, else their names), some (the fields from 7 on;
--        with 6 other than empty only if that still stands for all names, else these)
-- Gives {"all", fields and values}, {"some", values}, {"names", names, what stands for them, bytes}, {"lease"},
-- {"miss"}, {"absent"}, {"foreign"} or {"generation"}.
if KEYS[4] and redis.call('GET', KEYS[4]) ~= ARGV[1] then return {'generation'} end
local returns, layout = KEYS[1], '1'
local mark = redis.call('HGET', returns, '\0')
if not mark then
  if redis.call('EXISTS', returns) == 1 then return {'foreign'} end
  if redis.call('HEXISTS', KEYS[3], 'a') == 1 then return {'absent'} end
  return miss(KEYS[2], ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[4]))
end
if mark:sub(1, 1) ~= layout then return {'foreign'} end

local bytes = tonumber(redis.call('HGET', returns, '\0b') or 0)
if ARGV[5] == 'all' and bytes <= tonumber(ARGV[6]) then return {'all', redis.call('HGETALL', returns)} end
local stamp = mark .. ':' .. redis.call('HLEN', returns)
if ARGV[5] == 'all' or (ARGV[6] ~= '' and ARGV[6] ~= stamp) then
  return {'names', redis.call('HKEYS', returns), stamp, bytes}
end
local values = {}
local most = 4000 -- what a call takes in arguments
for i = 7, #ARGV, most do
  for _, value in ipairs(redis.call('HMGET', returns, unpack(ARGV, i, math.min(i + most - 1, #ARGV)))) do
    values[#values + 1] = value
  end
end
return {'some', values}
