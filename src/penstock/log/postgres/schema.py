"""The tables of a log in PostgreSQL: created or upgraded by the first process that opens it.

A migration that only adds (a table, an index, a column with a default) is an expansion: earlier versions of penstock,
also ones that restart, use the upgraded tables beside this one. One that drops or changes something is a contraction.
It raises `OLDEST_VERSION`, a release after the code stopped using that. In the table `penstock_log`, `version` is the
oldest version that can use the tables, and `tables` is their own version.
"""

from __future__ import annotations

from penstock.log.postgres.connections import MAX_MAINTENANCE, Connections
from penstock.log.retention.table_versions import TableVersions
from penstock.log.store import StoreError

_SCHEMA_1 = """
CREATE TABLE {schema}.runs (
    id text PRIMARY KEY, agent text NOT NULL, thread text NOT NULL, tenant text NOT NULL, version int NOT NULL,
    state text NOT NULL, epoch bigint NOT NULL, owner text NOT NULL, lease_until float8 NOT NULL, seq bigint NOT NULL,
    created float8 NOT NULL, updated float8 NOT NULL, open_inputs int NOT NULL
) WITH (fillfactor = 50);
CREATE INDEX runs_open ON {schema}.runs (created) WHERE state IN ('ready', 'running');
CREATE INDEX runs_by_thread ON {schema}.runs (thread, created);
CREATE TABLE {schema}.events (
    run_id text NOT NULL, seq bigint NOT NULL, at float8 NOT NULL, body bytea NOT NULL, PRIMARY KEY (run_id, seq)
);
CREATE TABLE {schema}.inputs (
    number bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, run_id text NOT NULL, kind text NOT NULL, key text NOT NULL,
    body bytea NOT NULL, taken_seq bigint, UNIQUE (run_id, kind, key)
);
CREATE INDEX inputs_open ON {schema}.inputs (run_id) WHERE taken_seq IS NULL;
CREATE TABLE {schema}.media (hash text PRIMARY KEY, body bytea NOT NULL, used float8 NOT NULL);
CREATE TABLE {schema}.media_uses (run_id text NOT NULL, hash text NOT NULL, PRIMARY KEY (run_id, hash));
CREATE INDEX media_uses_by_hash ON {schema}.media_uses (hash);
CREATE TABLE {schema}.penstock_log (version int NOT NULL);
INSERT INTO {schema}.penstock_log VALUES (0);
"""
_SCHEMA_2 = """
ALTER TABLE {schema}.runs ADD COLUMN wake_at float8 NOT NULL DEFAULT 0;
ALTER TABLE {schema}.inputs ADD COLUMN at float8 NOT NULL DEFAULT 0;
DROP INDEX {schema}.runs_open;
CREATE INDEX runs_open ON {schema}.runs (created) WHERE state IN ('ready', 'running') OR wake_at > 0;
"""
_SCHEMA_3 = """
ALTER TABLE {schema}.runs ADD COLUMN lease float8 NOT NULL DEFAULT 15;
"""
# Columns that change with every event have no index: PostgreSQL would write all indexes for each of them.
_SCHEMA_4 = """
ALTER TABLE {schema}.runs ADD COLUMN ended float8 NOT NULL DEFAULT 0;
UPDATE {schema}.runs SET ended = updated WHERE state = 'over';
DROP INDEX {schema}.runs_open;
DROP INDEX {schema}.runs_by_thread;
CREATE INDEX runs_open ON {schema}.runs (created, id) WHERE state IN ('ready', 'running') OR wake_at > 0;
CREATE INDEX runs_ready ON {schema}.runs (agent, (epoch = 0), created) WHERE state = 'ready';
CREATE INDEX runs_running ON {schema}.runs (created) WHERE state = 'running';
CREATE INDEX runs_waking ON {schema}.runs (wake_at) WHERE wake_at > 0;
CREATE INDEX runs_ended ON {schema}.runs (ended) WHERE state = 'over';
CREATE INDEX runs_by_time ON {schema}.runs (created DESC, id);
CREATE INDEX runs_by_thread ON {schema}.runs (thread, created DESC, id);
CREATE INDEX runs_by_tenant ON {schema}.runs (tenant, created DESC, id);
CREATE INDEX runs_by_agent ON {schema}.runs (agent, created DESC, id);
CREATE INDEX runs_by_state ON {schema}.runs (state, created DESC, id) WHERE state <> 'over';
CREATE INDEX runs_by_prefix ON {schema}.runs (id COLLATE "C");
"""
_SCHEMA_5 = """
ALTER TABLE {schema}.runs ADD COLUMN lost int NOT NULL DEFAULT 0;
ALTER TABLE {schema}.runs ADD COLUMN suspect text COLLATE "C" NOT NULL DEFAULT '';
ALTER TABLE {schema}.runs ADD COLUMN in_tool boolean NOT NULL DEFAULT false;
CREATE INDEX runs_suspect ON {schema}.runs (suspect, created) WHERE suspect <> '';
"""
_SCHEMA_6 = """
CREATE INDEX runs_by_end ON {schema}.runs (thread, ended) WHERE thread <> '';
"""
_SCHEMA_7 = """
CREATE TABLE {schema}.starts (
    id text PRIMARY KEY, tenant text NOT NULL, key text NOT NULL, caller text NOT NULL, body text NOT NULL,
    run_id text NOT NULL, seq bigint NOT NULL, at float8 NOT NULL, open_until float8 NOT NULL, answered bool NOT NULL
);
CREATE UNIQUE INDEX starts_by_key ON {schema}.starts (tenant, key) WHERE key <> '';
CREATE INDEX starts_by_run ON {schema}.starts (run_id);
CREATE INDEX starts_unanswered ON {schema}.starts (tenant, caller, at DESC) WHERE NOT answered AND key = '';
"""
_SCHEMA_8 = """
CREATE TABLE {schema}.workers (
    owner text PRIMARY KEY, kind text NOT NULL, agents text NOT NULL, started float8 NOT NULL, seen float8 NOT NULL
);
"""
MIGRATIONS = (  # from each version of the tables to the next one
    _SCHEMA_1, _SCHEMA_2, _SCHEMA_3, _SCHEMA_4, _SCHEMA_5, _SCHEMA_6, _SCHEMA_7, _SCHEMA_8,
)  # fmt: skip
SCHEMA_VERSION = len(MIGRATIONS)
OLDEST_VERSION = 4
"""The oldest version of the tables whose code can use those of `SCHEMA_VERSION`."""

_SET_VERSIONS = """
ALTER TABLE {schema}.penstock_log ADD COLUMN IF NOT EXISTS tables int;
UPDATE {schema}.penstock_log SET version = {oldest}, tables = {version};
"""
# A table of an earlier version does not have the second column.
_VERSIONS = """
SELECT version, coalesce((to_jsonb(log) ->> 'tables')::int, version) FROM {schema}.penstock_log AS log
"""

LOCK = 0x50454E53
"""The advisory lock of PostgreSQL that a process holds while it changes the tables."""

MAX_WAIT = 30.0
"""How many seconds a process waits for another one that changes the tables, or uses them."""


def prepare(connections: Connections, schema: str) -> None:
    """Create the tables, or upgrade those of an earlier version."""
    if versions_of(connections, schema).version >= SCHEMA_VERSION:
        return
    connection = connections.connect(MAX_MAINTENANCE)
    try:
        with connections.failing(), connection.transaction():
            connection.execute("SELECT set_config('lock_timeout', %s, true)", (f"{MAX_WAIT * 1000:.0f}ms",))
            connection.execute("SELECT pg_advisory_xact_lock(%s)", (LOCK,))
            version = versions_of(connections, schema).version
            if version >= SCHEMA_VERSION:  # another process has just done it
                return
            exists = connection.execute("SELECT 1 FROM pg_namespace WHERE nspname = %s", (schema,)).fetchone()
            if exists is None:
                connection.execute(f"CREATE SCHEMA {schema}".encode())
            for script in (*MIGRATIONS[version:], _SET_VERSIONS):
                statements = script.format(schema=schema, version=SCHEMA_VERSION, oldest=OLDEST_VERSION)
                connection.execute(statements.encode())
    finally:
        connection.close()


def versions_of(connections: Connections, schema: str) -> TableVersions:
    """The versions of the tables, 0 if there are none; a `StoreError` if this version cannot use them."""
    tables = {
        name
        for (name,) in connections.execute(
            "SELECT tablename::text FROM pg_tables WHERE schemaname = %(schema)s", {"schema": schema}
        )
    }
    if not tables:
        return TableVersions(0, 0, SCHEMA_VERSION)
    if "penstock_log" not in tables:
        raise StoreError(
            f"the schema {schema!r} of {connections.name} has tables of another program, not a log: "
            "choose another with schema="
        )
    [(oldest, version)] = connections.execute(_VERSIONS.format(schema=schema))
    versions = TableVersions(version, oldest, SCHEMA_VERSION)
    versions.check(f"the schema {schema!r} of {connections.name}")
    return versions
