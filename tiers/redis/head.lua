-- Reads the head of a job, or leases the right to fill it.
--
-- KEYS 1 head, 2 lease, 3 generation (left out in a cluster)
-- ARGV 1 generation that the keys were made with, 2 the lease to give, 3 how long it lasts in ms
-- Gives {"held", fields and values}, {"lease"}, {"miss"} or {"generation"}.
if KEYS[3] and redis.call('GET', KEYS[3]) ~= ARGV[1] then return {'generation'} end
local fields = redis.call('HGETALL', KEYS[1])
if #fields > 0 then return {'held', fields} end
-- Without room, or on a replica, there is no lease, and nothing is filled.
local leased = redis.pcall('SET', KEYS[2], ARGV[2], 'NX', 'PX', ARGV[3])
if type(leased) == 'table' and leased.ok then return {'lease'} end
return {'miss'}
