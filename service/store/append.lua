-- Stores events of ONE user. Every check comes before the first write, so that log and history hold the same events.
--
-- KEYS    {pp} is crc32(user_id) % 64 in two digits. Only it decides the cluster slot, so that all six share one.
--   1  nextitem:history:{pp}:<user>   LIST    entries "<timestamp_ms> <item> <type> <value> <event_id>", oldest first
--   2  nextitem:version:{pp}:<user>   STRING  how many events were accepted for the user so far
--   3  nextitem:marks:{pp}:<user>     HASH    event_id -> digest of its content: tells a duplicate from a conflict
--   4  nextitem:order:{pp}:<user>     LIST    "<received_ms> <event_id>" in order of arrival: which mark to delete next
--   5  nextitem:log:{pp}              STREAM  one field, e: the event as JSON, for the next training
--   6  nextitem:erased:{pp}           HASH    digest of an erased user's id -> tombstone (erase.lua)
--
-- ARGV    1 history_length   2 marks_kept   3 marks_age_ms   4 idle_ms   5 digest of the user's id
--         then four for each event: event_id, digest, entry, record
--
-- RETURNS {version, outcome of each event}: 0 accepted, 1 late, 2 duplicate, 3 conflict, 4 erased
--
-- Keys 1 to 4 expire together after idle_ms without an event. Only the archiver trims key 5.
-- Error replies are constants: a user's text in one could forge replies (CVE-2025-67733).

local history, version, marks, order, log, erased = unpack(KEYS)
local history_length, marks_kept, marks_age_ms = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
local idle_ms, user_digest = tonumber(ARGV[4]), ARGV[5]
local ACCEPTED, LATE, DUPLICATE, CONFLICT, ERASED = 0, 1, 2, 3, 4

-- Scripts do not roll back. So everything that could fail is checked before the first write, and the mark is written
-- last: a retry after a failure is then stored and not taken for a duplicate.
local wanted = {'list', 'string', 'hash', 'list', 'stream', 'hash'}
for i, key in ipairs(KEYS) do
  local found = redis.call('TYPE', key)['ok']
  if found ~= 'none' and found ~= wanted[i] then
    -- Keys 5 and 6 belong to the partition: without them no user's events can be stored.
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

-- Whether an event is older than its user's erasure, or was remembered when the user was erased.
local function is_erased(timestamp_ms, event_id)
  return timestamp_ms <= erased_until_ms
    or string.find(tombstone, ':' .. string.sub(redis.sha1hex(event_id), 1, 16), 14, true)
end

-- The index of the earliest entry later than `timestamp_ms`, by binary search. One must exist.
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

-- Inserts an entry by its time; equal times keep their order of arrival. Returns false for an entry that is older than
-- everything in a full history.
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
    -- LINSERT finds the first element equal to the pivot. The pivot is the first of its time, and equal entries have
    -- equal times, so that this element is the pivot itself.
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

-- Delete marks that are both beyond the newest marks_kept and older than marks_age_ms. At most 1,000 per call, so that
-- no call takes long.
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

-- The four keys expire at one moment, so that none outlives another. The time is renewed once a tenth of it has passed:
-- with every event it would cost four writes.
if count > 0 then
  if redis.call('PTTL', version) < 0.9 * idle_ms then -- below 0 if none is set
    for i = 1, 4 do
      redis.call('PEXPIREAT', KEYS[i], now_ms + idle_ms)
    end
  end
end
return reply
