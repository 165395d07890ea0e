-- Forgets a job, and keeps fills of it that began before from filling.
--
-- KEYS 1 head, 2 returns, 3 lease, 4 generation (left out in a cluster)
-- ARGV 1 generation that the keys were made with
if KEYS[4] and redis.call('GET', KEYS[4]) ~= ARGV[1] then return {'generation'} end
redis.call('UNLINK', KEYS[1], KEYS[2], KEYS[3])
return {'ok'}
