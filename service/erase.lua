-- Forgets ONE user: history, version, marks and order are gone, and events up to now stay away. What the log holds of the
-- user is deleted by the caller afterwards (HistoryStore.erase): nothing of this user is added to it from here on.
--
-- KEYS    as in history.lua
-- ARGV    1 digest of the user's id
-- RETURNS the id of the last entry in the log, '0-0' without one

local history, log, erased = KEYS[1], KEYS[5], KEYS[6]

for key, wanted in pairs({[log] = 'stream', [erased] = 'hash'}) do
  local found = redis.call('TYPE', key)['ok']
  if found ~= 'none' and found ~= wanted then
    return redis.error_reply('WRONGTYPE a key of this partition holds another kind of value')
  end
end

-- Clients' clocks may be ahead: an event of the future must not come back either, nor one that was erased before.
local time = redis.call('TIME')
local until_ms = time[1] * 1000 + math.floor(time[2] / 1000)
until_ms = math.max(until_ms, tonumber(redis.call('HGET', erased, ARGV[1]) or 0))
if redis.call('TYPE', history)['ok'] == 'list' then
  local newest = redis.call('LINDEX', history, -1)
  until_ms = math.max(until_ms, tonumber(string.sub(newest, 1, 13)) or 0)
end

redis.call('HSET', erased, ARGV[1], string.format('%013d', until_ms))
redis.call('DEL', KEYS[1], KEYS[2], KEYS[3], KEYS[4])
local last = redis.call('XREVRANGE', log, '+', '-', 'COUNT', 1)
return last[1] and last[1][1] or '0-0'
