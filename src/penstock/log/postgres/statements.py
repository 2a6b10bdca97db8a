"""The statements of a log in PostgreSQL.

Each operation is one statement in autocommit mode, so a process that is frozen or cut off holds no lock. `{schema}` is
the schema of the tables; `NOW` is the clock of the server, which all workers share, unless a test has its own.
"""

from penstock.log.starts.requests import FIELDS as START_FIELDS
from penstock.log.store import FIELDS, MAX_LEASES
from penstock.log.suspects import JOINABLE

NOW = "coalesce(%(now)s::float8, extract(epoch FROM clock_timestamp())::float8)"

_NOTIFY = """
    (SELECT pg_notify(%(channel)s, CASE WHEN octet_length(ids) < 7000 THEN ids ELSE '*' END)
     FROM (SELECT string_agg(id, E'\\n') AS ids FROM changed) AS run_ids WHERE ids IS NOT NULL)
"""
_QUEUED = "(SELECT pg_notify(%(channel)s, '') FROM changed WHERE state = 'ready' LIMIT 1)"  # for workers
_NOT_DURABLE = "set_config('synchronous_commit', 'off', true)"  # for this statement, which is a transaction

_MEDIA = f"""
    added_media AS (
        INSERT INTO {{schema}}.media (hash, body, used)
        SELECT hash, body, {NOW} FROM unnest(%(hashes)b::text[], %(media)b::bytea[]) AS given (hash, body)
        ON CONFLICT (hash) DO UPDATE SET used = excluded.used
    ),
    added_uses AS (
        INSERT INTO {{schema}}.media_uses (run_id, hash)
        SELECT used.run_id, used.hash FROM unnest(%(use_runs)b::text[], %(use_hashes)b::text[]) AS used (run_id, hash)
        JOIN changed ON changed.id = used.run_id ON CONFLICT DO NOTHING
    ),
"""

_CREATE = f"""
WITH {{started}} changed AS (
        INSERT INTO {{schema}}.runs
        SELECT %(id)s, %(agent)s, %(thread)s, %(tenant)s, %(version)s, {{claimed}}, at, at, 0, 0, %(lease)s
        FROM (SELECT {NOW} AS at) AS clock WHERE {{is_started}}
        ON CONFLICT DO NOTHING RETURNING id, created, state
    ),
    {_MEDIA}
    added AS (
        INSERT INTO {{schema}}.events
        SELECT id, seq, created, body FROM changed, unnest(%(bodies)b::bytea[]) WITH ORDINALITY AS event (body, seq)
    )
SELECT id, {_QUEUED} FROM changed
"""
# A whole run of another store.
_STARTS = """jsonb_to_recordset(%(starts)s::jsonb) AS start (
    id text, tenant text, key text, caller text, body text, run_id text, seq bigint, at float8, open_until float8,
    answered bool
)"""
ADD = f"""
WITH changed AS (
        INSERT INTO {{schema}}.runs (
            id, agent, thread, tenant, version, state, epoch, owner, lease_until, seq, created, updated, open_inputs,
            wake_at, lease, ended
        )
        SELECT %(id)s, %(agent)s, %(thread)s, %(tenant)s, %(version)s, %(state)s, %(epoch)s, %(owner)s, 0, %(seq)s,
            %(created)s, %(updated)s, coalesce(array_length(%(kinds)b::text[], 1), 0), %(wake_at)s, %(lease)s,
            CASE WHEN %(state)s = 'over' THEN %(updated)s::float8 ELSE 0 END
        WHERE NOT EXISTS (
            SELECT FROM {{schema}}.starts AS known JOIN {_STARTS} ON known.tenant = start.tenant
                AND known.key = start.key WHERE known.key <> '' AND known.run_id <> %(id)s
        )
        ON CONFLICT DO NOTHING RETURNING id, state
    ),
    {_MEDIA}
    added AS (
        INSERT INTO {{schema}}.events
        SELECT id, seq, at, body FROM changed, unnest(%(times)b::float8[], %(bodies)b::bytea[]) WITH ORDINALITY
            AS event (at, body, seq)
    ),
    added_inputs AS (
        INSERT INTO {{schema}}.inputs (run_id, kind, key, body, at)
        SELECT id, kind, key, body, at FROM changed, unnest(
            %(kinds)b::text[], %(keys)b::text[], %(input_bodies)b::bytea[], %(input_times)b::float8[]
        ) AS input (kind, key, body, at)
    ),
    added_starts AS (
        INSERT INTO {{schema}}.starts ({START_FIELDS}) SELECT start.* FROM changed, {_STARTS} ON CONFLICT DO NOTHING
    )
SELECT changed.id, {_QUEUED} FROM changed
"""
CREATE = _CREATE.replace("{claimed}", "%(state)s, 0, '', 0, 1")
CREATE_CLAIMED = _CREATE.replace("{claimed}", "'running', 1, %(owner)s, at + %(lease)s, 2")


def with_start(create: str, started: str = "") -> str:
    """A statement that creates a run, with the part that adds its request: without that, there is no run."""
    is_started = "EXISTS (SELECT FROM started)" if started else "true"
    return create.replace("{started}", started).replace("{is_started}", is_started)


_HAS_ENDED = f"(lease_until = 0 OR lease_until NOT BETWEEN {NOW} AND {NOW} + {MAX_LEASES} * lease)"
IS_LOST = f"state = 'running' AND {_HAS_ENDED}"
IS_WOKEN = f"state = 'waiting' AND wake_at > 0 AND wake_at <= {NOW}"
_HAS_NO_OWNER = "state = 'running' AND lease_until = 0"  # its worker has died, and `SUSPECT` has noted that
_IS_FREE = f"(suspect = '' OR suspect >= '{JOINABLE}')"
_IS_KNOWN = "version <= %(version)s AND (%(agents)s::text[] IS NULL OR agent = ANY (%(agents)s))"
CLAIMABLE = f"""
SELECT {FIELDS} FROM {{schema}}.runs
WHERE (state IN ('ready', 'running') OR wake_at > 0)  -- the condition of the index
    AND (state = 'ready' OR ({IS_LOST}) OR ({IS_WOKEN})) AND {_IS_KNOWN}
    AND (created, id) > (%(created)s::float8, %(id)s)
ORDER BY created, id LIMIT %(limit)s
"""

QUEUED = """
SELECT agent, count(*), min(created) FROM {schema}.runs WHERE state = 'ready' GROUP BY agent
"""

_TAKE = f"""
    changed AS (
        UPDATE {{schema}}.runs AS run
        SET state = 'running', epoch = epoch + 1, owner = %(owner)s, lease_until = at + %(lease)s,
            lease = %(lease)s, seq = seq + 1, updated = at, wake_at = 0
        FROM picked, (SELECT {NOW} AS at) AS clock WHERE run.id = picked.id
        RETURNING run.id, run.agent, run.epoch, run.seq, run.updated, run.created, picked.state AS found, run.lost,
            run.suspect, run.in_tool, run.tenant
    ),
    added AS (
        INSERT INTO {{schema}}.events
        SELECT id, seq, updated, convert_to(
            %(head)s || epoch || CASE found WHEN 'running' THEN %(lost_tail)s ELSE %(tail)s END, 'UTF8'
        )
        FROM changed
    )
SELECT id, agent, epoch, seq, found, lost, suspect, in_tool, tenant, {_NOTIFY} FROM changed ORDER BY epoch = 1, created
"""
EXPIRED = f"""
SELECT id, epoch, owner, suspect, lost, in_tool, lease_until < {NOW} - lease FROM {{schema}}.runs
WHERE {IS_LOST} AND lease_until <> 0
"""
LIVING = f"""
SELECT DISTINCT owner FROM {{schema}}.runs WHERE state = 'running' AND owner = ANY (%(owners)s)
    AND NOT {_HAS_ENDED}
"""
SUSPECT = f"""
UPDATE {{schema}}.runs AS run SET lost = given.lost, suspect = given.suspect, lease_until = 0
FROM unnest(%(run_ids)b::text[], %(epochs)b::int8[], %(losts)b::int8[], %(groups)b::text[])
    AS given (run_id, given_epoch, lost, suspect)
WHERE run.id = given.run_id AND epoch = given_epoch AND {IS_LOST} AND lease_until <> 0 RETURNING 1
"""
_IS_SUSPECT = f"suspect <> '' AND (state = 'ready' OR ({_HAS_NO_OWNER}) OR ({IS_WOKEN})) AND {_IS_KNOWN}"
FIRST_GROUP = f"SELECT min(suspect) FROM {{schema}}.runs WHERE {_IS_SUSPECT}"
SUSPECTS = f"""
SELECT {FIELDS} FROM {{schema}}.runs WHERE {_IS_SUSPECT} AND suspect < '{JOINABLE}'
ORDER BY suspect, created, id LIMIT %(limit)s
"""
CLAIM_GROUP = f"""
WITH picked AS (
        SELECT id, state FROM {{schema}}.runs WHERE suspect = %(group)s AND {_IS_SUSPECT}
        ORDER BY created, id LIMIT %(limit)s FOR UPDATE SKIP LOCKED
    ),
    {_TAKE}
"""
CLAIM_ONE = f"""
WITH picked AS (
        SELECT id, state FROM {{schema}}.runs
        WHERE id = %(run_id)s AND {_IS_KNOWN}
            AND (state IN ('ready', 'damaged') OR ({_HAS_NO_OWNER}) OR ({IS_WOKEN}))
        FOR UPDATE SKIP LOCKED
    ),
    {_TAKE}
"""
# Each kind of claimable runs has its own index, so that a claim costs the same however many runs there are.
CLAIM = f"""
WITH ready AS (
        SELECT run.* FROM unnest(coalesce(%(agents)s::text[], (
            SELECT array_agg(DISTINCT agent) FROM {{schema}}.runs WHERE state = 'ready'
        ))) AS name, LATERAL (
            SELECT id, state, epoch, created FROM {{schema}}.runs
            WHERE state = 'ready' AND agent = name AND version <= %(version)s AND {_IS_FREE}
            ORDER BY epoch = 0, created LIMIT %(limit)s FOR UPDATE SKIP LOCKED
        ) AS run
    ),
    lost AS (
        SELECT id, state, epoch, created FROM {{schema}}.runs WHERE {_HAS_NO_OWNER} AND {_IS_KNOWN} AND {_IS_FREE}
        ORDER BY epoch = 0, created LIMIT %(limit)s FOR UPDATE SKIP LOCKED
    ),
    woken AS (
        SELECT id, state, epoch, created FROM {{schema}}.runs WHERE {IS_WOKEN} AND {_IS_KNOWN} AND {_IS_FREE}
        ORDER BY epoch = 0, created LIMIT %(limit)s FOR UPDATE SKIP LOCKED
    ),
    picked AS (
        SELECT id, state FROM (TABLE ready UNION ALL TABLE lost UNION ALL TABLE woken) AS free
        ORDER BY epoch = 0, created LIMIT %(limit)s
    ),
    {_TAKE}
"""

# A worker that writes has not died: what was noted when its lease ended is taken back.
_LOST_OF_OWNER = "CASE run.lease_until WHEN 0 THEN greatest(run.lost - 1, 0) ELSE run.lost END"
_GROUP_OF_OWNER = "CASE run.lease_until WHEN 0 THEN '' ELSE run.suspect END"
APPEND = f"""
WITH batch AS (
        SELECT given.*, (
            SELECT count(*) FROM unnest(%(input_runs)b::text[], %(input_numbers)b::int8[]) AS taken (run_id, number)
            JOIN {{schema}}.inputs AS input ON input.number = taken.number AND input.taken_seq IS NULL
            WHERE taken.run_id = given.run_id
        ) AS taken_inputs
        FROM unnest(
            %(run_ids)b::text[], %(epochs)b::int8[], %(seqs)b::int8[], %(last_seqs)b::int8[], %(states)b::text[],
            %(last_hashes)b::bytea[], %(wakes_in)b::float8[], %(in_tools)b::int8[], %(progress)b::text[]
        ) WITH ORDINALITY
            AS given (run_id, epoch, seq, last_seq, state, last_hash, wake_in, in_tool, progress, place)
    ),
    changed AS (
        UPDATE {{schema}}.runs AS run
        SET seq = batch.last_seq, updated = {NOW}, open_inputs = run.open_inputs - batch.taken_inputs,
            wake_at = coalesce({NOW} + batch.wake_in, 0),
            lease_until = CASE WHEN batch.state = 'running' THEN {NOW} + %(lease)s ELSE 0 END,
            ended = CASE WHEN batch.state = 'over' THEN {NOW} ELSE 0 END,
            in_tool = CASE batch.in_tool WHEN 1 THEN true WHEN 0 THEN false ELSE run.in_tool END,
            lost = CASE WHEN batch.progress = 'step' THEN 0 ELSE {_LOST_OF_OWNER} END,
            suspect = CASE WHEN batch.progress = 'none' THEN {_GROUP_OF_OWNER} ELSE '' END,
            state = CASE WHEN batch.state = 'waiting' AND run.open_inputs > batch.taken_inputs
                THEN 'ready' ELSE batch.state END  -- an input that came before the run waited must not wait with it
        FROM batch WHERE run.id = batch.run_id AND run.epoch = batch.epoch AND run.seq = batch.seq
        RETURNING run.id, run.seq, run.updated, run.state, batch.place
    ),
    {_MEDIA}
    added AS (
        INSERT INTO {{schema}}.events
        SELECT changed.id, event.seq, changed.updated, event.body
        FROM unnest(%(event_seqs)b::int8[], %(bodies)b::bytea[], %(event_places)b::int8[]) AS event (seq, body, place)
        JOIN changed ON changed.place = event.place
    ),
    taken AS (
        UPDATE {{schema}}.inputs AS input SET taken_seq = changed.seq, body = ''  -- the events have what it contained
        FROM changed WHERE input.run_id = changed.id AND input.number = ANY (%(taken)b::int8[])
    ),
    refused AS (
        DELETE FROM {{schema}}.inputs AS input USING changed
        WHERE input.run_id = changed.id AND input.number = ANY (%(refused)b::int8[])
    ),
    repeated AS (  -- written before, and the connection broke before the store could say so
        SELECT batch.place, event.at FROM batch
        JOIN {{schema}}.runs AS run ON run.id = batch.run_id AND run.epoch = batch.epoch AND run.seq = batch.last_seq
        JOIN {{schema}}.events AS event ON event.run_id = run.id AND event.seq = run.seq
            AND sha256(event.body) = batch.last_hash
        WHERE batch.last_seq > batch.seq
    )
SELECT place, at, {_NOTIFY}, {_QUEUED}, {{durability}}
FROM (SELECT place, updated AS at FROM changed UNION SELECT place, at FROM repeated) AS owned
"""
APPEND_DURABLE = APPEND.replace("{durability}", "NULL")
APPEND_FAST = APPEND.replace("{durability}", _NOT_DURABLE)

RENEW = f"""
WITH changed AS (
        UPDATE {{schema}}.runs AS run
        SET lease_until = {NOW} + %(lease)s, lost = {_LOST_OF_OWNER}, suspect = {_GROUP_OF_OWNER}
        FROM unnest(%(run_ids)b::text[], %(epochs)b::int8[]) WITH ORDINALITY AS given (run_id, epoch, place)
        WHERE run.id = given.run_id AND run.epoch = given.epoch AND run.state = 'running' RETURNING given.place
    )
SELECT place, {_NOT_DURABLE} FROM changed
"""

ACQUIT = """
UPDATE {schema}.runs AS run SET suspect = ''
FROM unnest(%(run_ids)b::text[], %(epochs)b::int8[]) AS given (run_id, epoch)
WHERE run.id = given.run_id AND run.epoch = given.epoch AND run.state = 'running' RETURNING 1
"""
RETRY = f"""
WITH changed AS (
        UPDATE {{schema}}.runs SET state = 'ready', suspect = %(group)s WHERE id = %(run_id)s AND state = 'parked'
        RETURNING state
    )
SELECT (SELECT count(*) FROM changed), (SELECT count(*) FROM {{schema}}.runs WHERE id = %(run_id)s), {_QUEUED}
"""

READ = """
SELECT seq, at, body FROM {schema}.events WHERE run_id = %(run_id)s AND seq > %(after)s ORDER BY seq LIMIT %(limit)s
"""
FIRST = "SELECT body FROM {schema}.events WHERE run_id = %(id)s AND seq = 1"
MEDIA = "SELECT hash, body FROM {schema}.media WHERE hash = ANY (%(hashes)s)"

# The number of open inputs is in the row of the run, so that an `APPEND` which waited for this sees it.
PUT = f"""
WITH added AS (
        INSERT INTO {{schema}}.inputs (run_id, kind, key, body, at)
        SELECT id, %(kind)s, %(key)s, %(body)b, {NOW} FROM {{schema}}.runs WHERE id = %(run_id)s AND state <> 'over'
        ON CONFLICT DO NOTHING RETURNING run_id
    ),
    changed AS (
        UPDATE {{schema}}.runs AS run
        SET open_inputs = open_inputs + 1, state = CASE
            WHEN state = 'waiting' OR (state IN ('damaged', 'parked') AND %(kind)s = 'cancel') THEN 'ready'
            ELSE state END
        FROM added WHERE run.id = added.run_id RETURNING run.state
    )
SELECT (SELECT count(*) FROM added), (SELECT count(*) FROM {{schema}}.runs WHERE id = %(run_id)s), {_QUEUED}
"""
INPUTS = """
SELECT run_id, kind, key, body, number, at FROM {schema}.inputs
WHERE taken_seq IS NULL AND run_id = ANY (%(run_ids)s) ORDER BY number
"""

FIND = f"SELECT {FIELDS} FROM {{schema}}.runs WHERE id = %(id)s"
_LIST = f"SELECT {FIELDS} FROM {{source}} WHERE {{conditions}} ORDER BY created DESC, id LIMIT %(limit)s"
LIST = _LIST.replace("{source}", "{schema}.runs")
# A prefix has few runs: without MATERIALIZED, the planner may search all runs by time for them.
LIST_PREFIX = f"""
WITH found AS MATERIALIZED (
        SELECT * FROM {{schema}}.runs
        WHERE id COLLATE "C" >= %(prefix)s AND id COLLATE "C" < %(prefix)s || U&'\\+10FFFF'
    )
{_LIST.replace("{source}", "found")}
"""

_CUTOFF = "coalesce((%(tenants)s::jsonb ->> page.tenant)::float8, %(before)s::float8)"
# Each conversation of the page is looked up once, however many runs it has there.
_MAY_GO = f"""
    threads AS MATERIALIZED (
        SELECT DISTINCT tenant, thread, {_CUTOFF} AS cutoff FROM page WHERE thread <> ''
    ),
    live AS MATERIALIZED (
        SELECT tenant, thread FROM threads, LATERAL (
            SELECT FROM {{schema}}.runs AS other WHERE other.thread = threads.thread AND other.thread <> ''
                AND ended >= cutoff AND other.tenant = threads.tenant
            UNION ALL
            SELECT FROM {{schema}}.runs AS other WHERE other.thread = threads.thread AND other.thread <> ''
                AND ended = 0 AND other.tenant = threads.tenant  -- an unfinished run has no end
            LIMIT 1
        ) AS other
    )
"""
_IS_OLD = f"ended < {_CUTOFF} AND (tenant, thread) NOT IN (SELECT tenant, thread FROM live)"
PRUNABLE = f"""
WITH page AS MATERIALIZED (
        SELECT {FIELDS}, ended FROM {{schema}}.runs
        WHERE state = 'over' AND ended < %(latest)s::float8 AND (ended, id) > (%(ended)s::float8, %(id)s)
            AND ended >= %(ended)s::float8
        ORDER BY ended, id LIMIT %(limit)s
    ),
    {_MAY_GO}
SELECT {FIELDS}, {_IS_OLD} FROM page ORDER BY ended, id
"""
DELETE = f"""
WITH page AS MATERIALIZED (
        SELECT id, tenant, thread, ended FROM {{schema}}.runs WHERE id = ANY (%(ids)s) AND state = 'over'
        FOR UPDATE SKIP LOCKED
    ),
    {_MAY_GO},
    old AS MATERIALIZED (SELECT id FROM page WHERE {_IS_OLD}),
    without_events AS (DELETE FROM {{schema}}.events USING old WHERE run_id = old.id),
    without_inputs AS (DELETE FROM {{schema}}.inputs USING old WHERE run_id = old.id),
    without_media AS (DELETE FROM {{schema}}.media_uses USING old WHERE run_id = old.id),
    without_starts AS (DELETE FROM {{schema}}.starts USING old WHERE run_id = old.id),
    deleted AS (DELETE FROM {{schema}}.runs AS run USING old WHERE run.id = old.id RETURNING 1)
SELECT count(*) FROM deleted
"""
# A statement that is under way may refer to media that nobody used before: those of the last hour stay.
PRUNE_MEDIA = f"""
DELETE FROM {{schema}}.media AS one
WHERE used < {NOW} - 3600 AND NOT EXISTS (SELECT FROM {{schema}}.media_uses AS used WHERE used.hash = one.hash)
"""
