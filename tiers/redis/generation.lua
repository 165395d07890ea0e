-- Gives the generation, a new one if there is none, if one is asked for, or if a server is met that nobody of the
-- namespace has met: one that was started again from what it had saved, or that was a replica. It may lack what
-- was written last, and would give what it has for the whole.
--
-- KEYS 1 generation, 2 the servers that were met
-- ARGV 1 "1" for a new one, 2 some characters of chance, then the ids of servers
local generation = redis.call('GET', KEYS[1])
local renew = ARGV[1] == '1' or not generation
if #ARGV > 2 then
  local others = redis.call('SCARD', KEYS[2]) > 0
  if redis.call('SADD', KEYS[2], unpack(ARGV, 3)) > 0 and others then renew = true end
  redis.call('EXPIRE', KEYS[2], 90 * 86400)
end
if not renew then return {'ok', generation} end

-- The time in ms, to the base of 36: 8 characters until 2059.
local now = redis.call('TIME')
local rest, text = now[1] * 1000 + math.floor(now[2] / 1000), ''
while #text < 8 do
  local digit = rest % 36
  text = string.sub('0123456789abcdefghijklmnopqrstuvwxyz', digit + 1, digit + 1) .. text
  rest = math.floor(rest / 36)
end
redis.call('SET', KEYS[1], text .. ARGV[2])
return {'ok', text .. ARGV[2]}
