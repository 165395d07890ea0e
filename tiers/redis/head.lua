-- Reads the head of a job, or leases the right to fill it.
--
-- KEYS 1 head, 2 lease, 3 generation (left out in a cluster, where it is on another node)
-- ARGV 1 generation that the keys were made with, 2 the lease to give, 3 how long it lasts in ms, 4 guard in ms
-- Gives {"held", fields and values}, {"lease"}, {"miss"} or {"generation"}.
if KEYS[3] and redis.call('GET', KEYS[3]) ~= ARGV[1] then return {'generation'} end
local fields = redis.call('HGETALL', KEYS[1])
if #fields > 0 then return {'held', fields} end
return miss(KEYS[2], ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[4]))
