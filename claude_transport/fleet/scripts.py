"""The scripts that the broker of a fleet runs, and the names of its keys. Each script runs as a whole or not at all.

The fields of a session's hash have short names, because there may be many thousands of idle sessions:

* `v` the version of the format, `s` the state (`new`, `live`, `ended`), `x` 1 when the session should stop
* of the worker: `we` its token, `wn` its name, `wu` the end of its lease in milliseconds of the broker's clock
* of the worker, too: `wb` the last number of `out` before it, `wo` the last number of `out`, `wi` how far it has taken `in`
* of the client: `ce`, `cb`, `ci`, `co` and `cu` likewise
* `wh` and `ch` the last tokens of that side, each with the number behind which it began: `3.a:12 4.b:15 `
* no end has a token `N.lost-X`. It replaces the token that ends with `X`, because the other end has seen a newer one, which is lost
* `tt` turns that have begun, `td` turns that are over, `ts` those of them whose transcript is stored
* `wf` the number of the last entry of `in` that the process has received, `@` and the token of the worker that says so. A worker of an
  older library does not say it, and then `wi` counts in its place
* `cw` the window of the client in bytes: the process has to tell what it has received when it is a quarter of that
* `cp` the token of the client before, while the new one waits for what that has read
* `kp` entries of `out` that stay after they were taken
* `q` what the client asked for (labels, workspace, options), `k` the digest of what a client shows to come back, `p` the proof of its token
"""

from __future__ import annotations

from typing import Final

from claude_transport.redis.slots import slot_of

PUSHED_BYTES: Final = 8 * 2**10
"""The most bytes of an append that its reader is told at once. Of a larger one it is told the number, and reads the entries itself."""

_WORKER_PARTS: Final = 4
"""In how many of the parts of a cluster workers are. Programs with another number would not find each other."""

_NUMBERS: Final = """
local function num(text) return tonumber(string.match(text or '', '^%d+')) or 0 end
local function text(number) return string.format('%.0f', number) end
"""

_ADMITTED: Final = """
-- returns the list of a side with one more token. It has at most eight, so that it stays small
local function admitted(list, token, base)
    list = (list or '') .. token .. ':' .. base .. ' '
    local _, count = string.gsub(list, ' ', '')
    if count > 8 then list = string.gsub(list, '^[^ ]* ', '') end
    return list
end
"""

_FIELDS: Final = (
    _NUMBERS
    + """
-- what is to be written, in one call: each call of a script costs as much as ten of its lines
local fields = {}
local function set(field, value) fields[#fields + 1] = field fields[#fields + 1] = value end
local function write() if #fields > 0 then redis.call('HSET', KEYS[1], unpack(fields)) end end
-- counts only grow: a call that was cut may be carried out after a later one
local function raise(field, value, before) if num(value) > num(before) then set(field, value) end end
local function by_of(told) return string.match(told or '', '@(.*)$') end
-- returns what the worker has told now of what its process has received
local function tell_fed(token, number, told)
    if number == '' or (num(number) <= num(told) and by_of(told) == token) then return told end
    set('wf', number .. '@' .. token)
    return number .. '@' .. token
end
-- how far the other end has used what it has taken
local function used(side, taken, told, worker)
    return side == 'c' and by_of(told) == worker and num(told) or tonumber(taken)
end
"""
)

_NOW: Final = """
local time = redis.call('TIME')
local now = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
"""

CREATE: Final = (
    _NUMBERS
    + _NOW
    + """
-- KEYS: hash. ARGV: token, milliseconds of the client's lease, milliseconds until an unclaimed session is forgotten, (field, value)*
local there = redis.call('HGET', KEYS[1], 'ce')
if there then
    if there == ARGV[1] then return {'OK'} end
    return {'EXISTS'}
end
redis.call('HSET', KEYS[1], 's', 'new', 'we', '0.', 'wb', 0, 'wo', 0, 'wi', 0, 'wu', 0,
    'ce', ARGV[1], 'cb', 0, 'ci', 0, 'co', 0, 'cu', text(now + ARGV[2]), unpack(ARGV, 4))
redis.call('PEXPIRE', KEYS[1], ARGV[3])
return {'OK'}
"""
)

ATTACH: Final = (
    _NUMBERS
    + _ADMITTED
    + _NOW
    + """
-- KEYS: hash. ARGV: nonce, milliseconds of the lease, what was shown to come back, bytes of the window, and 1 when the client before
-- may still say what it has read: until the same client comes again without it
local m = redis.call('HMGET', KEYS[1], 'ce', 'k', 'ci', 'wi', 'co', 'wo', 'we', 's', 'wb', 'cu', 'cp', 'ch')
if not m[1] then return {'GONE'} end
if (m[2] or '') ~= '' and redis.sha1hex(ARGV[3]) ~= m[2] then return {'DENIED'} end
local token = m[1]
if string.match(token, '%.(.*)$') ~= ARGV[1] then
    token = text(num(token) + 1) .. '.' .. ARGV[1]
    redis.call('HSET', KEYS[1], 'ce', token, 'cb', m[3], 'ch', admitted(m[12], token, m[3]), 'cu', text(now + ARGV[2]), 'cw', ARGV[4])
    if ARGV[5] == '1' then redis.call('HSET', KEYS[1], 'cp', m[1]) end
end
if ARGV[5] ~= '1' and m[11] and m[11] ~= '' then redis.call('HSET', KEYS[1], 'cp', '') end
return {'OK', token, m[3], m[4], m[5], m[6], m[7], m[8], m[9], tonumber(m[10] or '0') > now and 1 or 0}
"""
)

CLAIM: Final = (
    _NUMBERS
    + _ADMITTED
    + _NOW
    + """
-- KEYS: hash, in, out. ARGV: nonce, node, milliseconds of the lease
local m = redis.call('HMGET', KEYS[1], 'we', 's', 'wu', 'wn', 'wo', 'wh')
if not m[1] then return {'GONE'} end
if m[2] == 'ended' then return {'ENDED'} end
if string.match(m[1], '%.(.*)$') ~= ARGV[1] then
    if tonumber(m[3]) > now then return {'HELD', m[4] or '', text(tonumber(m[3]) - now)} end
    local token = text(num(m[1]) + 1) .. '.' .. ARGV[1]
    redis.call('HSET', KEYS[1], 'we', token, 'wb', m[5], 'wh', admitted(m[6], token, m[5]), 'wn', ARGV[2], 's', 'live')
    for index = 1, 3 do redis.call('PERSIST', KEYS[index]) end
end
redis.call('HSET', KEYS[1], 'wu', text(now + ARGV[3]))
return {'OK', redis.call('HGETALL', KEYS[1])}
"""
)

APPEND: Final = (
    _FIELDS
    + """
-- KEYS: hash, stream. ARGV: side, token, number of the first, turns that are over or '', turns that are stored or '',
-- what the process has received or '', (kind, data)*. Tells the reader, who listens to a channel with the name of the stream
local last_of, taken_of = 'ci', 'wi'
if ARGV[1] == 'w' then last_of, taken_of = 'wo', 'co' end
local m = redis.call('HMGET', KEYS[1], ARGV[1] .. 'e', last_of, taken_of, 'td', 'ts', 'wf', 'we')
if not m[1] then return {'GONE'} end
if m[1] ~= ARGV[2] then return {'FENCED', m[1]} end
local last, number = tonumber(m[2]), tonumber(ARGV[3])
if number > last + 1 then return {'GAP', last, tonumber(m[3])} end
local before, size, head, body = last, 0, ARGV[3] .. ' ' .. ARGV[2], {}
for at = 7, #ARGV, 2 do
    if number > last then
        redis.call('XADD', KEYS[2], text(number) .. '-0', 'e', ARGV[2], 'k', ARGV[at], 'd', ARGV[at + 1])
        last = number
    end
    number = number + 1
    size = size + #ARGV[at + 1]
end
if last > before then set(last_of, text(last)) end
if ARGV[4] ~= '' then raise('td', ARGV[4], m[4]) end
if ARGV[5] ~= '' then raise('ts', ARGV[5], m[5]) end
local told = tell_fed(m[1], ARGV[6], m[6])
write()
if last > before then
    if size <= @PUSHED@ then
        for at = 7, #ARGV, 2 do
            head = head .. ' ' .. ARGV[at] .. ':' .. #ARGV[at + 1]
            body[#body + 1] = ARGV[at + 1]
        end
    end
    redis.call('PUBLISH', KEYS[2], head .. '\\n' .. table.concat(body))
end
return {'OK', last, tonumber(m[3]), used(ARGV[1], m[3], told, m[7])}
"""
).replace("@PUSHED@", str(PUSHED_BYTES))

APPEND_TO_SHARD: Final = APPEND.replace("'PUBLISH'", "'SPUBLISH'")
"""The same for a cluster, where a message goes only to the node that has the stream."""

TAKE: Final = (
    _FIELDS
    + """
-- KEYS: hash, the stream that is read. ARGV: side, token, number, turns that have begun or '', what the process has received or ''
local taken_of, last_of = 'co', 'wo'
if ARGV[1] == 'w' then taken_of, last_of = 'wi', 'ci' end
local m = redis.call('HMGET', KEYS[1], ARGV[1] .. 'e', taken_of, 'kp', last_of, 'cw', 'cp', 'tt', 'wf')
if not m[1] then return {'GONE'} end
-- a client that was just replaced may still say what it has read
if m[1] ~= ARGV[2] and (ARGV[1] ~= 'c' or m[6] ~= ARGV[2]) then return {'FENCED', m[1]} end
local upto = tonumber(ARGV[3])
if upto > tonumber(m[2]) then set(taken_of, ARGV[3]) end
if m[1] == ARGV[2] then
    if ARGV[4] ~= '' then raise('tt', ARGV[4], m[7]) end
    tell_fed(m[1], ARGV[5], m[8])
end
write()
if upto > tonumber(m[2]) then
    local oldest = upto + 1
    if ARGV[1] == 'c' then oldest = oldest - tonumber(m[3] or '0') end
    if oldest > tonumber(m[4]) then
        redis.call('UNLINK', KEYS[2]) -- an empty stream takes more memory than all the rest of an idle session
    elseif oldest > 1 then
        redis.call('XTRIM', KEYS[2], 'MINID', text(oldest) .. '-0')
    end
end
if m[1] ~= ARGV[2] then return {'FENCED', m[1]} end
return {'OK', num(m[5])}
"""
)

SYNC: Final = (
    _FIELDS
    + """
-- KEYS: hash. ARGV: side, token, cursor, token of the other end as it was seen, number that was taken, turns that
-- have begun, that are over, and that are stored, what the process has received or '',
-- turns of which the prompt was read, and the last number that this end has said
local function lift(field, value) -- several may be of one field
    raise(field, value, redis.call('HGET', KEYS[1], field))
    write()
    fields = {}
end
local other, last_of, taken_of, own_last, own_taken = 'w', 'wo', 'co', 'ci', 'wi'
if ARGV[1] == 'w' then other, last_of, taken_of, own_last, own_taken = 'c', 'ci', 'wi', 'wo', 'co' end
local m = redis.call('HMGET', KEYS[1], ARGV[1] .. 'e', other .. 'e', other .. 'b', last_of, taken_of, own_last, own_taken, other .. 'h')
if not m[1] then return {'GONE'} end
if m[1] ~= ARGV[2] then return {'FENCED', m[1]} end
local token, base, cursor, seen = m[2], tonumber(m[3]), tonumber(ARGV[3]), ARGV[4]
local lifts = seen == token
local nonce = string.match(token, '%.(.*)$') or ''
local replaced = string.match(nonce, '^lost%-(.*)$')
if replaced and replaced == string.match(seen, '%.(.*)$') then
    -- this end has read what the replaced one has said, and goes on behind it
    lifts, base = true, math.max(base, cursor)
elseif seen ~= '' and not lifts and num(seen) >= num(token) then
    -- the broker has lost that this other end was admitted: whoever it admits next is newer than both
    token, lifts = text(num(seen)) .. '.lost-' .. (replaced or nonce), true
    redis.call('HSET', KEYS[1], other .. 'e', token)
    if other == 'w' then redis.call('HSET', KEYS[1], 'wu', 0) end
elseif seen ~= '' and not lifts then
    -- several may have come since: what this end has read is the same up to where the first of them began
    for each, began in string.gmatch(m[8] or '', '([^ :]+):(%d+) ') do
        if each ~= seen and num(each) >= num(seen) then
            base = math.min(base, tonumber(began))
            break
        end
    end
end
if lifts and cursor > tonumber(m[4]) then
    -- the broker has lost entries that were read: nothing may take their numbers
    redis.call('HSET', KEYS[1], last_of, ARGV[3])
    if token ~= seen then base = cursor redis.call('HSET', KEYS[1], other .. 'b', ARGV[3], other .. 'h', '') end
    if cursor > tonumber(m[5]) then
        redis.call('HSET', KEYS[1], taken_of, ARGV[3])
        if ARGV[1] == 'w' then lift('tt', ARGV[10]) end
    end
end
-- the broker may have lost that this end has taken them. An end that has read nothing has taken what was there when it was
-- admitted. Of a writer that this end has not read yet, only the entries before it are the same
if seen == m[2] or seen == '' then lift(taken_of, ARGV[5]) else lift(taken_of, text(math.min(num(ARGV[5]), base))) end
if ARGV[1] == 'w' then
    lift('tt', ARGV[6])
    -- a turn of which the result is lost is not over: a worker that comes next has to tell it as uncertain
    if tonumber(m[6]) >= num(ARGV[11]) then
        lift('td', ARGV[7])
        lift('ts', ARGV[8])
    end
end
local told = redis.call('HGET', KEYS[1], 'wf')
if lifts then
    told = tell_fed(m[1], ARGV[9], told)
    write()
end
return {'OK', token, base, tonumber(m[6]), tonumber(m[7]), used(ARGV[1], m[7], told, redis.call('HGET', KEYS[1], 'we'))}
"""
)

RENEW: Final = (
    _NUMBERS
    + _NOW
    + """
-- KEYS: hash, the stream that is read. ARGV: side, token, milliseconds, number of the last entry that was read
local other = 'w'
if ARGV[1] == 'w' then other = 'c' end
local m = redis.call('HMGET', KEYS[1], ARGV[1] .. 'e', other .. 'u', 'x')
if not m[1] then return {'GONE'} end
if m[1] ~= ARGV[2] then return {'FENCED', m[1]} end
redis.call('HSET', KEYS[1], ARGV[1] .. 'u', text(now + ARGV[3]))
-- what cannot be read is worth a look, too
local found = redis.pcall('XREAD', 'COUNT', 1, 'STREAMS', KEYS[2], ARGV[4] .. '-0')
return {'OK', tonumber(m[2] or '0') - now, tonumber(m[3] or '0'), found and 1 or 0}
"""
)

RELEASE: Final = """
-- KEYS: hash, in, out, setup. ARGV: token, state, milliseconds until an ended session is forgotten. Its setup is forgotten at once.
local token = redis.call('HGET', KEYS[1], 'we')
if not token then return {'GONE'} end
if token ~= ARGV[1] then return {'FENCED', token} end
redis.call('HSET', KEYS[1], 's', ARGV[2], 'wu', 0)
if ARGV[2] == 'ended' then
    for index = 1, 3 do redis.call('PEXPIRE', KEYS[index], ARGV[3]) end
    if KEYS[4] then redis.call('DEL', KEYS[4]) end
end
return {'OK'}
"""

DISCARD: Final = """
-- KEYS: hash, in, out. ARGV: token of the client. Forgets a session that no worker has taken.
local m = redis.call('HMGET', KEYS[1], 'ce', 's')
if not m[1] then return {'GONE'} end
if m[1] ~= ARGV[1] then return {'FENCED', m[1]} end
if m[2] ~= 'new' then return {'LIVE'} end
for index = 1, 3 do redis.call('DEL', KEYS[index]) end -- one by one: a user may have each right on one key
return {'OK'}
"""

LOOK: Final = """
-- KEYS: queue, sessions. ARGV: how many names are moved at most, how many that wait are returned at most, seconds, a number,
-- as many sessions, (session)*.
-- Holds the first sessions for that many seconds, and lets the sessions wait for a worker that clients have begun. Returns the time in
-- milliseconds, how many names were moved, how many of them no session has, how many sessions wait, and the names of those that do: of the
-- last sessions, and of the first ones of all
local time = redis.call('TIME')
local now = time[1] + time[2] / 1000000
local held = 4 + tonumber(ARGV[4])
for index = 5, held do redis.call('ZADD', KEYS[2], string.format('%.6f', now + ARGV[3]), ARGV[index]) end
local rows, junk = redis.call('ZRANGE', KEYS[1], 0, ARGV[1] - 1), 0
for _, row in ipairs(rows) do
    redis.call('ZREM', KEYS[1], row)
    if #row <= 128 and string.match(row, '^[%w_.:-]+$') then redis.call('ZADD', KEYS[2], 'NX', 0, row) else junk = junk + 1 end
end
local upto = string.format('%.6f', now)
local waiting = redis.call('ZCOUNT', KEYS[2], '-inf', upto)
local names = redis.call('ZRANGE', KEYS[2], '-inf', upto, 'BYSCORE', 'LIMIT', 0, ARGV[2])
local wanted = {}
for index = held + 1, #ARGV do
    local score = redis.call('ZSCORE', KEYS[2], ARGV[index])
    if score and tonumber(score) <= now then wanted[#wanted + 1] = ARGV[index] end
end
for _, name in ipairs(names) do wanted[#wanted + 1] = name end
return {'OK', string.format('%.0f', now * 1000), #rows, junk, waiting, wanted}
"""

TELL: Final = """
-- KEYS: the workers, then each order that this one has a place in. ARGV: its name, its record, the part of its capacity that is in use or
-- '' for a worker that takes no sessions, milliseconds after which an order is forgotten that no worker tells of
redis.call('HSET', KEYS[1], ARGV[1], ARGV[2])
for index = 2, #KEYS do
    if ARGV[3] == '' then
        redis.call('ZREM', KEYS[index], ARGV[1])
    else
        redis.call('ZADD', KEYS[index], ARGV[3], ARGV[1])
        redis.call('PEXPIRE', KEYS[index], ARGV[4])
    end
end
return {'OK'}
"""

MEND: Final = """
-- KEYS: a table that all share. ARGV: its type. Deletes it when it has another one.
if redis.call('TYPE', KEYS[1]).ok ~= ARGV[1] then redis.call('UNLINK', KEYS[1]) end
return {'OK'}
"""


class SharedKeys:
    """The keys that the sessions and workers of a fleet share, or of one part of a fleet: those of a part are on one node of a cluster."""

    def __init__(self, tag: str) -> None:
        self._tag = tag
        self.queue: str = f"{{{tag}}}:queue"
        """Sorted set: sessions that clients have begun. A worker that looks at it moves them into `sessions`."""
        self.sessions: str = f"{{{tag}}}:sessions"
        """Sorted set: each session that has not ended, by the end of its lease. Those whose lease has ended wait for a worker."""
        self.nodes: str = f"{{{tag}}}:nodes"
        """Hash: each worker by its name."""
        self.loads: str = f"{{{tag}}}:loads"
        """Sorted set: the workers that take sessions, by the part of their capacity that is in use."""
        self.homes: str = f"{{{tag}}}:homes"
        """Hash: the worker that had a workspace last."""

    def loads_of(self, label: str) -> str:
        """Return the key of the same sorted set for the workers with a label."""
        return f"{self.loads}:{label}"

    def wake_channel(self, node: str) -> str:
        """Return the channel that wakes a worker of this part. It keeps nothing."""
        return f"{{{self._tag}}}:wake:{node}"


class FleetKeys(SharedKeys):
    """The keys of a fleet. Those of one session begin with `{prefix:session}`, and those of all sessions with `{prefix}`.

    After `divide()`, those of all sessions begin with `{prefix#0}`, `{prefix#1}` and so on: each name has its place in one of the parts,
    and no node of a cluster has them all. A script touches the keys of one session, or those of one part: one slot of a cluster.
    """

    def __init__(self, prefix: str) -> None:
        super().__init__(prefix)
        self._prefix = prefix
        self.parts: tuple[SharedKeys, ...] = (self,)
        """The parts. Without `divide()` there is one, which is this object."""
        self.worker_parts: tuple[SharedKeys, ...] = (self,)
        """Those that have workers. They are fewer, because a small fleet looks for a worker in each of them."""

    def divide(self, parts: int) -> None:
        """Divide what all sessions share, for a cluster. Every program of a fleet has to divide it alike."""
        self.parts = tuple(SharedKeys(f"{self._prefix}#{number}") for number in range(parts))
        self.worker_parts = self.parts[:_WORKER_PARTS]

    def part_of(self, name: str) -> SharedKeys:
        """Return the part that has a session or a workspace."""
        return self.parts[slot_of(name) % len(self.parts)]

    def worker_part_of(self, name: str) -> SharedKeys:
        """Return the part that has a worker, or in which a worker for a session is looked for first."""
        return self.worker_parts[slot_of(name) % len(self.worker_parts)]

    def meta(self, session: str) -> str:
        """Return the key of the hash of a session."""
        return f"{{{self._prefix}:{session}}}:meta"

    def incoming(self, session: str) -> str:
        """Return the key of the stream that the client writes. What is added is told on a channel of the same name."""
        return f"{{{self._prefix}:{session}}}:in"

    def outgoing(self, session: str) -> str:
        """Return the key of the stream that the worker writes, and of its channel."""
        return f"{{{self._prefix}:{session}}}:out"

    def setup(self, session: str) -> str:
        """Return the key of the hash with the requests that set a session up."""
        return f"{{{self._prefix}:{session}}}:setup"

    def wake(self, node: str) -> str:
        """Return the channel that wakes a worker. It keeps nothing."""
        return self.worker_part_of(node).wake_channel(node)
