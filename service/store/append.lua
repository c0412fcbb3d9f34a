-- Stores events of ONE user, whole or, before the first write, not at all. The durable log and the history never part.
--
-- KEYS    {pp} is crc32(user_id) % 64 in two digits: the braces hold nothing of the user, so that all six share a slot
--   1  nextitem:history:{pp}:<user>   LIST    entries "<timestamp_ms> <item> <type> <value> <event_id>", oldest first
--   2  nextitem:version:{pp}:<user>   STRING  how many events were accepted for the user so far
--   3  nextitem:marks:{pp}:<user>     HASH    event_id -> digest of its content: tells a repeat from a conflict
--   4  nextitem:order:{pp}:<user>     LIST    "<received_ms> <event_id>" as they arrived: which mark to forget next
--   5  nextitem:log:{pp}              STREAM  one field, e: the event as JSON, for the next training
--   6  nextitem:erased:{pp}           HASH    digest of an erased user's id -> which events stay erased (erase.lua)
--
-- ARGV    1 history_length   2 marks_kept   3 marks_age_ms   4 idle_ms   5 digest of the user's id
--         then four for each event: event_id, digest, entry, record
--
-- RETURNS {version, outcome of each event}: 0 accepted, 1 late, 2 duplicate, 3 conflict, 4 erased
--
-- Keys 1 to 4 expire together when the user was idle for idle_ms. Key 5 is trimmed by the archiver alone.
-- Error replies are constant: text of a user in one could forge replies (CVE-2025-67733).

local history, version, marks, order, log, erased = unpack(KEYS)
local history_length, marks_kept, marks_age_ms = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
local idle_ms, user_digest = tonumber(ARGV[4]), ARGV[5]
local ACCEPTED, LATE, DUPLICATE, CONFLICT, ERASED = 0, 1, 2, 3, 4

-- Scripts do not roll back: whatever could fail is looked at before anything is written, and the mark comes last, so
-- that a retry after a failure is stored and not taken for a duplicate.
local wanted = {'list', 'string', 'hash', 'list', 'stream', 'hash'}
for i, key in ipairs(KEYS) do
  local found = redis.call('TYPE', key)['ok']
  if found ~= 'none' and found ~= wanted[i] then
    -- Keys 5 and 6 are a partition's: without them nobody's events can be stored.
    return redis.error_reply(i < 5 and 'WRONGTYPE a key of this user holds another kind of value'
      or 'WRONGTYPE a key of this partition holds another kind of value')
  end
end
local count = redis.call('GET', version) or '0'
if #count > 15 or not string.find(count, '^%d+$') then
  return redis.error_reply('WRONGTYPE the version of this user is no count')
end
count = tonumber(count)

local time = redis.call('TIME')
local now_ms = time[1] * 1000 + math.floor(time[2] / 1000)

local tombstone = redis.call('HGET', erased, user_digest)
local erased_until_ms = tonumber(string.sub(tombstone or '-1', 1, 13))

local function time_of(entry)
  return tonumber(string.sub(entry, 1, 13))
end

-- Whether an event was there when its user was erased, or is from before.
local function is_erased(timestamp_ms, event_id)
  return timestamp_ms <= erased_until_ms
    or string.find(tombstone, ':' .. string.sub(redis.sha1hex(event_id), 1, 16), 14, true)
end

-- The index of the earliest entry later than `timestamp_ms`; one exists. The list is sorted by time: halve it.
local function first_after(timestamp_ms)
  local low, high = 0, redis.call('LLEN', history) - 1
  while low < high do
    local middle = math.floor((low + high) / 2)
    if time_of(redis.call('LINDEX', history, middle)) > timestamp_ms then
      high = middle
    else
      low = middle + 1
    end
  end
  return low
end

-- Equal times keep their order of arrival. False: older than all that a full history remembers.
local function insert(entry)
  local timestamp_ms = time_of(entry)
  local tail = redis.call('LINDEX', history, -1)
  if not tail or time_of(tail) <= timestamp_ms then
    redis.call('RPUSH', history, entry)
  else
    local oldest_kept = redis.call('LINDEX', history, -history_length)
    if oldest_kept and timestamp_ms < time_of(oldest_kept) then
      return false
    end
    -- LINSERT takes the first element equal to the pivot. Equal entries have equal times, and the pivot is the
    -- earliest of its time, so that the place is exact even then.
    redis.call('LINSERT', history, 'BEFORE', redis.call('LINDEX', history, first_after(timestamp_ms)), entry)
  end
  redis.call('LTRIM', history, -history_length, -1)
  return true
end

local reply = {0}
for i = 6, #ARGV, 4 do
  local event_id, digest, entry, record = ARGV[i], ARGV[i + 1], ARGV[i + 2], ARGV[i + 3]
  local mark = redis.call('HGET', marks, event_id)
  local outcome
  if mark then
    outcome = mark == digest and DUPLICATE or CONFLICT
  elseif tombstone and is_erased(time_of(entry), event_id) then
    outcome = ERASED
  else
    redis.call('XADD', log, '*', 'e', record)
    outcome = insert(entry) and ACCEPTED or LATE
    count = redis.call('INCR', version)
    redis.call('RPUSH', order, string.format('%013d %s', now_ms, event_id))
    redis.call('HSET', marks, event_id, digest)
  end
  reply[#reply + 1] = outcome
end
reply[1] = count

-- Forget marks that are both beyond the number kept and older than the age kept, at most 1,000 a call: a user whose
-- old marks pile up is cleared over several calls, and no call takes long.
local spare = math.min(redis.call('LLEN', order) - marks_kept, 1000)
if spare > 0 then
  local forgotten = {}
  for _, arrival in ipairs(redis.call('LRANGE', order, 0, spare - 1)) do
    if tonumber(string.sub(arrival, 1, 13)) > now_ms - marks_age_ms then
      break
    end
    forgotten[#forgotten + 1] = string.sub(arrival, 15)
  end
  if #forgotten > 0 then
    redis.call('HDEL', marks, unpack(forgotten))
    redis.call('LTRIM', order, #forgotten, -1)
  end
end

-- All at one moment, so that none outlives another. Not with every event, since it is four writes: a tenth early at most.
if count > 0 then
  if redis.call('PTTL', version) < 0.9 * idle_ms then -- below 0 where it is not set
    for i = 1, 4 do
      redis.call('PEXPIREAT', KEYS[i], now_ms + idle_ms)
    end
  end
end
return reply
