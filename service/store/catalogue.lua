-- Changes items of the catalogue: all that are given, or none. Every check comes before the first write.
--
-- KEYS    All three share the cluster slot of "catalogue".
--   1  nextitem:{catalogue}:version  STRING  how many changes there were so far; each item that changes counts one
--   2  nextitem:{catalogue}:items    HASH    item_id -> record; the empty field: time in ms of the first change
--   3  nextitem:{catalogue}:log      STREAM  the newest changes, by ids "<version>-<time in ms>": i: item_id, r: record,
--                                            which is empty where the item is again as the bundle has it
--
-- ARGV    1 most records   2 most entries of the log
--         then five for each item: item_id, operation, known ("1" if the bundle has the item), available, metadata
--
-- A record is one byte and, after it, the item's own metadata as JSON, nothing where the bundle's count. The byte is
-- "1": available, "0": not, "d": deleted. An item of the bundle without a record is as "1" has it, and has no record.
--
-- Operations: "put" sets both, what is not given ("") to the bundle's; "merge" and "patch" leave what is not given as it
-- is; "patch" and "delete" are for items that exist.
--
-- RETURNS {0, how many items changed, version, ms since the first change}, or {1}: no such item, or {2}: no room
--
-- Error replies are constants, as in append.lua.

local version, items, log = unpack(KEYS)
local most_records, most_entries = tonumber(ARGV[1]), tonumber(ARGV[2])
local CHANGED, MISSING, FULL = 0, 1, 2

for key, wanted in pairs({[version] = 'string', [items] = 'hash', [log] = 'stream'}) do
  local found = redis.call('TYPE', key)['ok']
  if found ~= 'none' and found ~= wanted then
    return redis.error_reply('WRONGTYPE a key of the catalogue holds another kind of value')
  end
end
local count = redis.call('GET', version) or '0'
if #count > 15 or not string.find(count, '^%d+$') then
  return redis.error_reply('WRONGTYPE the version of the catalogue is no count')
end
count = tonumber(count)
local last = '0-0'
if redis.call('TYPE', log)['ok'] == 'stream' then
  local info = redis.call('XINFO', 'STREAM', log)
  for i = 1, #info, 2 do
    if info[i] == 'last-generated-id' then
      last = info[i + 1]
    end
  end
end
if tonumber(string.match(last, '^%d+')) ~= count then
  return redis.error_reply('WRONGTYPE the version of the catalogue is not that of its log')
end

local time = redis.call('TIME')
local now_ms = time[1] * 1000 + math.floor(time[2] / 1000)
local since = redis.call('HGET', items, '')
local since_ms = tonumber(since or now_ms)
if not since_ms then
  return redis.error_reply('WRONGTYPE the time of the first change of the catalogue is no number')
end

-- The item's next record, nil if there is no such item; `record` is false where there is none.
local function find_next(record, operation, known, available, metadata)
  local exists = record and string.sub(record, 1, 1) ~= 'd' or not record and known
  if operation == 'delete' then
    return (record or known) and 'd' or nil
  elseif operation == 'patch' and not exists then
    return nil
  end
  local before = operation ~= 'put' and exists and record or '1'
  return (available ~= '' and available or string.sub(before, 1, 1))
    .. (metadata ~= '' and metadata or string.sub(before, 2))
end

local changes, more = {}, 0
for i = 3, #ARGV, 5 do
  local item, known = ARGV[i], ARGV[i + 2] == '1'
  local record = redis.call('HGET', items, item)
  local next_record = find_next(record, ARGV[i + 1], known, ARGV[i + 3], ARGV[i + 4])
  if not next_record then
    return {MISSING}
  end
  if known and next_record == '1' and record ~= '1' then
    next_record = '' -- as the bundle has it: no record
  end
  if next_record ~= (record or (known and '' or nil)) then
    changes[#changes + 1] = {item, next_record}
    more = more + (record and 0 or 1) - (next_record == '' and 1 or 0)
  end
end
if more > 0 and redis.call('HLEN', items) - (since and 1 or 0) + more > most_records then
  return {FULL}
end

if #changes > 0 and not since then
  redis.call('HSET', items, '', string.format('%.0f', now_ms))
end
for _, change in ipairs(changes) do
  count = redis.call('INCR', version)
  local id = string.format('%.0f-%.0f', count, now_ms)
  redis.call('XADD', log, 'MAXLEN', '=', most_entries, id, 'i', change[1], 'r', change[2])
  if change[2] == '' then
    redis.call('HDEL', items, change[1])
  else
    redis.call('HSET', items, change[1], change[2])
  end
end
return {CHANGED, #changes, count, now_ms - since_ms}
