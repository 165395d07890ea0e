-- Merges facts into a job, or fills it. Everything in a call happens, or the job is no longer held: whatever
-- goes wrong half-way deletes it, so that a part of a job never passes for the whole.
--
-- KEYS 1 head, 2 returns, 3 lease, 4 generation (left out in a cluster, where it is on another node)
-- ARGV 1 generation that the keys were made with
--      2 what to do: merge, fill, absent
--      3 lease of the fill, empty for none
--      4 TTL in ms; of a merge the longest that is left, 0 for as it is
--      5 1 if the fill has all returns
--      6 guard in ms, see revoke
--      7 bytes of returns above which they are not held
--      8 id of the fill
--      then for each fact: "h" or "r", field, rule, bytes, value that was read before, value
-- Gives {"ok", a character for each fact, values that tie}, {"generation"}, {"declined"} or {"corrupt"}.
local head, returns, lease = KEYS[1], KEYS[2], KEYS[3]
local doing, ttl, guard = ARGV[2], tonumber(ARGV[4]), tonumber(ARGV[6])
local first_fact, per_fact = 9, 6
local mark, bytes_field = '\0', '\0b'
local layout = '1'

-- A fill that began before is not to bring what was read before, nor, for the time of the guard, is one that
-- begins now: the durable store may get the fact later than we.
local function revoke()
  if guard > 0 then
    redis.call('SET', lease, '!', 'PX', guard)
  else
    redis.call('DEL', lease)
  end
end

local function may_fill()
  local have = redis.call('GET', lease)
  if ARGV[3] == '' then return have ~= '!' and not young(ARGV[1], guard) end
  return have == ARGV[3]
end

local function held_head() return redis.call('HGET', head, 'c') == layout end

local function held_returns()
  local have = redis.call('HGET', returns, mark)
  return have and have:sub(1, 1) == layout
end

-- A value is a rank, a digest of 8 bytes, and an envelope: "Sn", two bytes, the version in 8.
local function sound(value) return #value >= 25 and value:sub(10, 11) == 'Sn' end

-- Numbers, as strings are compared by the locale.
local function compare(a, b)
  local x = {a:byte(1), struct.unpack('>I4I4', a:sub(14, 21))}
  local y = {b:byte(1), struct.unpack('>I4I4', b:sub(14, 21))}
  for i = 1, 3 do
    if x[i] ~= y[i] then return x[i] < y[i] and -1 or 1 end
  end
  return 0
end

-- Puts a fact in and says what became of it: 0 stored, 2 repeat, 3 differs, t tie, c for a corrupt value there.
local function put(key, field, rule, bytes, expected, value)
  local have = redis.call('HGET', key, field)
  if not have then
    redis.call('HSET', key, field, value)
    if key == returns then redis.call('HINCRBY', key, bytes_field, bytes) end
    return '0'
  end
  local same = have:sub(2, 9) == value:sub(2, 9)
  if have == value or rule == 'set' then return same and '2' or '0' end
  if not sound(have) then return 'c' end
  local order = compare(value, have)
  if order == 0 and have ~= expected then return 't', have end
  local wins = order == 0 or (rule == 'max' and order > 0) or (rule == 'min' and order < 0)
  if wins then redis.call('HSET', key, field, value) end
  if same then return '2' end
  return wins and '0' or '3'
end

local function main()
  if KEYS[4] and redis.call('GET', KEYS[4]) ~= ARGV[1] then return {'generation'} end
  local has_head, has_returns = held_head(), held_returns()
  if doing == 'absent' then
    if has_head or not may_fill() then return {'declined'} end
    redis.call('DEL', head, returns, lease)
    redis.call('HSET', head, 'a', layout)
    redis.call('PEXPIRE', head, ttl)
    return {'ok', '', {}}
  end
  if doing == 'merge' and not has_head then
    redis.call('DEL', head, returns)
    revoke()
    return {'ok', string.rep('0', (#ARGV - first_fact + 1) / per_fact), {}}
  end
  if doing == 'fill' then
    -- What is known to be absent was not touched since: any fact would have ended that.
    local allowed = may_fill() or (not has_head and redis.call('HGET', head, 'a') == layout)
    if not has_head then
      if not allowed then return {'declined'} end
      redis.call('DEL', head, returns)
      redis.call('HSET', head, 'c', layout)
      has_returns = false
    end
    if ARGV[5] == '1' and allowed and not has_returns then
      redis.call('DEL', returns)
      redis.call('HSET', returns, mark, layout .. ARGV[8])
      has_returns = true
    end
    if allowed then redis.call('DEL', lease) end
  end

  local no_cache = doing == 'merge' and redis.call('HEXISTS', head, 'n') == 1
  local outcomes, ties, missed = {}, {}, false
  for i = first_fact, #ARGV, per_fact do
    local key = ARGV[i] == 'h' and head or returns
    local outcome, tie = '0', nil
    if key == returns and no_cache then
      outcome = '4'
    elseif key == returns and not has_returns then
      missed = true
    else
      outcome, tie = put(key, unpack(ARGV, i + 1, i + per_fact - 1))
      if ARGV[i + 1] == 'n' then no_cache = doing == 'merge' end
    end
    if outcome == 'c' then
      redis.call('DEL', head, returns)
      revoke()
      return {'corrupt'}
    end
    outcomes[#outcomes + 1] = outcome
    ties[#ties + 1] = tie
  end

  if has_returns and tonumber(redis.call('HGET', returns, bytes_field) or 0) > tonumber(ARGV[7]) then
    redis.call('DEL', returns)
    has_returns, missed = false, true
  end
  if missed then revoke() end
  if doing == 'fill' then
    redis.call('PEXPIRE', head, ttl)
    if has_returns and ARGV[5] == '1' then redis.call('PEXPIRE', returns, ttl) end
  elseif ttl > 0 and redis.call('PTTL', head) > ttl then
    redis.call('PEXPIRE', head, ttl)
    redis.call('PEXPIRE', returns, ttl)
  end
  return {'ok', table.concat(outcomes), ties}
end

local done, result = pcall(main)
if done then return result end
redis.pcall('DEL', head, returns, lease)
return redis.error_reply(type(result) == 'table' and result.err or tostring(result))
