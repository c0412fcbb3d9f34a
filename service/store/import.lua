-- Merges events of ONE user from a log file into the history. Whatever was merged before changes nothing, by whichever
-- way it came and however long ago: unlike append.lua this does not rely on marks, which are forgotten in the end.
--
-- - An event whose id is marked, or stands in the history, is known.
-- - An event that is older than everything in a full history is not stored at all, since nothing tells whether it was
--   stored before and pushed out. Whoever merges a user's events in the order of their times loses none by that: they
--   fill the history from its old end, so that what is older than a full one was merged before. The same holds for one
--   as old as the oldest, unless the user's marks are all there and would know it.
--
-- KEYS    as in append.lua
-- ARGV    1 history_length   2 idle_ms   3 digest of the user's id
--         then four for each event, in the order of their times: event_id, digest, entry, record ('': not for the log)
--
-- RETURNS {version, outcome of each event}, as append.lua does; 1, late, says here that nothing was written
--
-- Error replies are constants, as in append.lua.

local history, version, marks, order, log, erased = unpack(KEYS)
local history_length, idle_ms, user_digest = tonumber(ARGV[1]), tonumber(ARGV[2]), ARGV[3]
local ACCEPTED, LATE, DUPLICATE, CONFLICT, ERASED = 0, 1, 2, 3, 4
local AT_ONCE = 1000 -- arguments of one command: Lua's stack holds some 8,000

-- As in append.lua, every check comes before the first write.
local wanted = {'list', 'string', 'hash', 'list', 'stream', 'hash'}
for i, key in ipairs(KEYS) do
  local found = redis.call('TYPE', key)['ok']
  if found ~= 'none' and found ~= wanted[i] then
    return redis.error_reply(i < 5 and 'WRONGTYPE a key of this user holds another kind of value'
      or 'WRONGTYPE a key of this partition holds another kind of value')
  end
end
local count = redis.call('GET', version) or '0'
if #count > 15 or not string.find(count, '^%d+$') then
  return redis.error_reply('WRONGTYPE the version of this user is no count')
end

local time = redis.call('TIME')
local now_ms = time[1] * 1000 + math.floor(time[2] / 1000)

local tombstone = redis.call('HGET', erased, user_digest)
local erased_until_ms = tonumber(string.sub(tombstone or '-1', 1, 13))

local function time_of(entry)
  return tonumber(string.sub(entry, 1, 13))
end

local function is_erased(timestamp_ms, event_id)
  return timestamp_ms <= erased_until_ms
    or string.find(tombstone, ':' .. string.sub(redis.sha1hex(event_id), 1, 16), 14, true)
end

-- What is neither marked nor erased, each id once.
local reply, events, ids = {0}, {}, {}
local before_ms = -1
for i = 4, #ARGV, 4 do
  local at_ms = time_of(ARGV[i + 2])
  if not at_ms or at_ms < before_ms then
    return redis.error_reply('ERR the events are not in the order of their times')
  end
  before_ms = at_ms
  ids[#ids + 1] = ARGV[i]
end
local known = redis.call('HMGET', marks, unpack(ids))
local met = {}
for n, event_id in ipairs(ids) do
  local at = 4 * n
  local event = {event_id, ARGV[at + 1], ARGV[at + 2], ARGV[at + 3], time_of(ARGV[at + 2]), n + 1}
  local mark = known[n] or met[event_id]
  if mark then
    reply[n + 1] = mark == event[2] and DUPLICATE or CONFLICT
  elseif tombstone and is_erased(event[5], event_id) then
    reply[n + 1] = ERASED
  else
    met[event_id] = event[2]
    events[#events + 1] = event
  end
end

-- The history, where it has what is not older than the first of them: it is looked through and merged with them.
local kept, entries_by_id = nil, {}
local tail = redis.call('LINDEX', history, -1)
if #events > 0 and tail and time_of(tail) >= events[1][5] then
  kept = redis.call('LRANGE', history, 0, -1)
  for _, entry in ipairs(kept) do
    local event_id = string.match(entry, '^%d+ %S+ %S+ %S+ (%S+)$')
    if not event_id then
      return redis.error_reply('WRONGTYPE an entry of this user is none')
    end
    entries_by_id[event_id] = entry
  end
end
local oldest = kept and kept[#kept - history_length + 1]
local oldest_ms = oldest and time_of(oldest) or -1
local all_marked = oldest and redis.call('LLEN', order) >= tonumber(count)

local fresh = {}
for _, event in ipairs(events) do
  local entry = entries_by_id[event[1]]
  local outcome
  if entry then
    outcome = entry == event[3] and DUPLICATE or CONFLICT
  elseif event[5] < oldest_ms or (event[5] == oldest_ms and not all_marked) then
    outcome = LATE
  else
    outcome = ACCEPTED
    fresh[#fresh + 1] = event
  end
  reply[event[6]] = outcome
end

reply[1] = tonumber(count)
if #fresh == 0 then
  return reply
end

-- INCRBY comes first: a full store refuses it, as it would not refuse DEL, and then nothing is written. After it nothing
-- fails.
reply[1] = redis.call('INCRBY', version, #fresh)

-- What stands in the history before all of them stays as it is; the rest is written anew after it. Equal times keep
-- their order of arrival.
local ending = {}
if kept then
  local place = 1
  while kept[place] and time_of(kept[place]) <= fresh[1][5] do
    place = place + 1
  end
  if kept[place] then
    if place == 1 then
      redis.call('DEL', history)
    else
      redis.call('LTRIM', history, 0, place - 2)
    end
  end
  for _, event in ipairs(fresh) do
    while kept[place] and time_of(kept[place]) <= event[5] do
      ending[#ending + 1] = kept[place]
      place = place + 1
    end
    ending[#ending + 1] = event[3]
  end
  for rest = place, #kept do
    ending[#ending + 1] = kept[rest]
  end
else
  for n, event in ipairs(fresh) do
    ending[n] = event[3]
  end
end
for first = 1, #ending, AT_ONCE do
  redis.call('RPUSH', history, unpack(ending, first, math.min(first + AT_ONCE - 1, #ending)))
end
redis.call('LTRIM', history, -history_length, -1)

local marked, arrived = {}, {}
for n, event in ipairs(fresh) do
  if event[4] ~= '' then
    redis.call('XADD', log, '*', 'e', event[4])
  end
  arrived[n] = string.format('%013d %s', now_ms, event[1])
  marked[2 * n - 1], marked[2 * n] = event[1], event[2]
end
redis.call('RPUSH', order, unpack(arrived))
redis.call('HSET', marks, unpack(marked))
for i = 1, 4 do -- a history that was written anew has lost its time
  redis.call('PEXPIREAT', KEYS[i], now_ms + idle_ms)
end
return reply
