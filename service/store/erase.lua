#!lua flags=allow-oom
-- Erases ONE user: deletes history, version, marks and order, and writes a tombstone by which append.lua rejects
-- earlier events. Afterwards the caller deletes the user's entries in the log (HistoryStore.erase). The flag allow-oom
-- lets the script run in a full store: it frees more than it writes.
--
-- KEYS    1 to 6 as in append.lua
--   7  nextitem:erasing:{pp}         ZSET    digest of an erased user's id -> time in ms; until the archiver is done
-- ARGV    1 digest of the user's id   2 the service's time in ms
-- RETURNS the id of the last entry that the log ever held, '0-0' if there was none
--
-- A tombstone, in key 6, consists of words separated by single spaces: `until_ms last_entry_id`, and for each
-- remembered event that is later than until_ms the word `timestamp_ms:digest of its event_id`. until_ms has 13 digits.

local history, log, erased, erasing = KEYS[1], KEYS[5], KEYS[6], KEYS[7]

for key, wanted in pairs({[log] = 'stream', [erased] = 'hash', [erasing] = 'zset'}) do
  local found = redis.call('TYPE', key)['ok']
  if found ~= 'none' and found ~= wanted then
    return redis.error_reply('WRONGTYPE a key of this partition holds another kind of value')
  end
end

local last = '0-0'
if redis.call('TYPE', log)['ok'] == 'stream' then
  local info = redis.call('XINFO', 'STREAM', log)
  for i = 1, #info, 2 do
    if info[i] == 'last-generated-id' then
      last = info[i + 1]
    end
  end
end

-- until_ms is the earlier of two clocks. With the later one, the user's next events would be rejected until the other
-- clock has caught up. Remembered events after until_ms get a word each: a client's clock may be ahead, or the two may
-- differ.
local time = redis.call('TIME')
local now_ms = time[1] * 1000 + math.floor(time[2] / 1000)
local before = redis.call('HGET', erased, ARGV[1]) or ''
local until_ms = math.max(math.min(now_ms, tonumber(ARGV[2])), tonumber(string.sub(before, 1, 13)) or 0)
local words = {string.format('%013d', until_ms), last}
for at, event in string.gmatch(before, ' (%d+):(%x+)') do
  if tonumber(at) > until_ms then
    words[#words + 1] = at .. ':' .. event
  end
end
if redis.call('TYPE', history)['ok'] == 'list' then
  for i = 1, redis.call('LLEN', history) do -- from the newest; the list is sorted by time
    local at, event_id = string.match(redis.call('LINDEX', history, -i), '^(%d+) %S+ %S+ %S+ (%S+)$')
    if not at or tonumber(at) <= until_ms then
      break
    end
    words[#words + 1] = at .. ':' .. string.sub(redis.sha1hex(event_id), 1, 16)
  end
end

redis.call('DEL', KEYS[1], KEYS[2], KEYS[3], KEYS[4])
redis.call('HSET', erased, ARGV[1], table.concat(words, ' '))
redis.call('ZADD', erasing, now_ms, ARGV[1])
return last
