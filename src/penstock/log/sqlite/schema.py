"""The tables of a log in a SQLite file: created or upgraded by the first process that opens it.

A migration that only adds (a table, an index, a column with a default; not to `heads`, whose rows are replaced as a
whole) is an expansion: earlier versions of penstock, also ones that restart, use the upgraded file beside this one. One
that drops or changes something is a contraction. It raises `OLDEST_VERSION`, a release after the code stopped using it.
`user_version` is the oldest version that can use the file, and the table `penstock_log` has the version of the tables.
"""

from __future__ import annotations

import sqlite3

from penstock.log.retention.table_versions import TableVersions
from penstock.log.store import StoreError

APPLICATION_ID = 0x50454E53
"""Marks the file as a log of penstock."""

_SCHEMA_1 = """
CREATE TABLE runs (
    id TEXT PRIMARY KEY, agent TEXT NOT NULL, thread TEXT NOT NULL, tenant TEXT NOT NULL, version INTEGER NOT NULL,
    state TEXT NOT NULL, epoch INTEGER NOT NULL, owner TEXT NOT NULL, lease_until REAL NOT NULL, seq INTEGER NOT NULL,
    created REAL NOT NULL, updated REAL NOT NULL
) WITHOUT ROWID;
CREATE INDEX runs_open ON runs (state, lease_until) WHERE state <> 'over';
CREATE INDEX runs_by_thread ON runs (thread, created);
CREATE TABLE events (
    run_id TEXT NOT NULL, seq INTEGER NOT NULL, at REAL NOT NULL, body BLOB NOT NULL, PRIMARY KEY (run_id, seq)
) WITHOUT ROWID;
CREATE TABLE inputs (
    number INTEGER PRIMARY KEY AUTOINCREMENT, run_id TEXT NOT NULL, kind TEXT NOT NULL, key TEXT NOT NULL,
    body BLOB NOT NULL, taken_seq INTEGER, UNIQUE (run_id, kind, key)
);
CREATE INDEX inputs_open ON inputs (run_id) WHERE taken_seq IS NULL;
CREATE TABLE media (hash TEXT PRIMARY KEY, body BLOB NOT NULL) WITHOUT ROWID;
"""
_SCHEMA_2 = """
CREATE TABLE media_uses (run_id TEXT NOT NULL, hash TEXT NOT NULL, PRIMARY KEY (run_id, hash)) WITHOUT ROWID;
CREATE INDEX media_uses_by_hash ON media_uses (hash);
"""
_SCHEMA_3 = """
ALTER TABLE runs ADD COLUMN wake_at REAL NOT NULL DEFAULT 0;
ALTER TABLE inputs ADD COLUMN at REAL NOT NULL DEFAULT 0;
"""
_SCHEMA_4 = """
ALTER TABLE runs ADD COLUMN lease REAL NOT NULL DEFAULT 15;
"""
_SCHEMA_5 = """
CREATE TABLE ordered (
    number INTEGER PRIMARY KEY, run_id TEXT NOT NULL, seq INTEGER NOT NULL, at REAL NOT NULL, body BLOB NOT NULL,
    previous INTEGER NOT NULL
);
INSERT INTO ordered (run_id, seq, at, body, previous)
SELECT run_id, seq, at, body, CASE seq WHEN 1 THEN 0 ELSE -1 END FROM events ORDER BY run_id, seq;
UPDATE ordered SET previous = number - 1 WHERE previous < 0;
DROP TABLE events;
ALTER TABLE ordered RENAME TO events;
CREATE TABLE marks (
    run_id TEXT NOT NULL, seq INTEGER NOT NULL, number INTEGER NOT NULL, PRIMARY KEY (run_id, seq)
) WITHOUT ROWID;
INSERT INTO marks SELECT run_id, seq, number FROM events WHERE seq % 64 = 0;
ALTER TABLE runs ADD COLUMN last INTEGER NOT NULL DEFAULT 0;
CREATE INDEX events_by_run ON events (run_id);
UPDATE runs SET last = coalesce((SELECT max(number) FROM events WHERE run_id = id), 0);
DROP INDEX events_by_run;
"""
_SCHEMA_6 = """
CREATE TABLE numbered (
    number INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT NOT NULL UNIQUE, agent TEXT NOT NULL, thread TEXT NOT NULL,
    tenant TEXT NOT NULL, version INTEGER NOT NULL, state TEXT NOT NULL, owner TEXT NOT NULL, lease_until REAL NOT NULL,
    lease REAL NOT NULL, wake_at REAL NOT NULL, created REAL NOT NULL
);
CREATE TABLE heads (
    run INTEGER PRIMARY KEY, epoch INTEGER NOT NULL, seq INTEGER NOT NULL, last INTEGER NOT NULL, updated REAL NOT NULL
);
INSERT INTO numbered (id, agent, thread, tenant, version, state, owner, lease_until, lease, wake_at, created)
SELECT id, agent, thread, tenant, version, state, owner, lease_until, lease, wake_at, created FROM runs
ORDER BY created, id;
INSERT INTO heads SELECT number, epoch, seq, last, updated FROM numbered JOIN runs USING (id);
DROP TABLE runs;
ALTER TABLE numbered RENAME TO runs;
CREATE INDEX runs_open ON runs (state, lease_until) WHERE state <> 'over';
CREATE INDEX runs_by_thread ON runs (thread, created);
"""
_SCHEMA_7 = """
ALTER TABLE runs ADD COLUMN begun INTEGER NOT NULL DEFAULT 0;
ALTER TABLE runs ADD COLUMN ended REAL NOT NULL DEFAULT 0;
UPDATE runs SET begun = 1 WHERE owner <> '';
UPDATE runs SET ended = (SELECT updated FROM heads WHERE run = number) WHERE state = 'over';
DROP INDEX runs_open;
DROP INDEX runs_by_thread;
CREATE INDEX runs_open ON runs (created, id) WHERE state IN ('ready', 'running') OR wake_at > 0;
CREATE INDEX runs_ready ON runs (agent, begun DESC, created) WHERE state = 'ready';
CREATE INDEX runs_running ON runs (lease_until) WHERE state = 'running';
CREATE INDEX runs_waking ON runs (wake_at) WHERE wake_at > 0;
CREATE INDEX runs_ended ON runs (ended) WHERE state = 'over';
CREATE INDEX runs_by_time ON runs (created DESC, id);
CREATE INDEX runs_by_thread ON runs (thread, created DESC, id);
CREATE INDEX runs_by_tenant ON runs (tenant, created DESC, id);
CREATE INDEX runs_by_agent ON runs (agent, created DESC, id);
CREATE INDEX runs_by_state ON runs (state, created DESC, id) WHERE state <> 'over';
"""
_SCHEMA_8 = """
ALTER TABLE runs ADD COLUMN lost INTEGER NOT NULL DEFAULT 0;
ALTER TABLE runs ADD COLUMN suspect TEXT NOT NULL DEFAULT '';
ALTER TABLE runs ADD COLUMN in_tool INTEGER NOT NULL DEFAULT 0;
CREATE INDEX runs_suspect ON runs (suspect, created) WHERE suspect <> '';
"""
_SCHEMA_9 = """
CREATE INDEX runs_by_end ON runs (thread, ended) WHERE thread <> '';
"""
_SCHEMA_10 = """
CREATE TABLE starts (
    id TEXT PRIMARY KEY, tenant TEXT NOT NULL, key TEXT NOT NULL, caller TEXT NOT NULL, body TEXT NOT NULL,
    run_id TEXT NOT NULL, seq INTEGER NOT NULL, at REAL NOT NULL, open_until REAL NOT NULL, answered INTEGER NOT NULL
) WITHOUT ROWID;
CREATE UNIQUE INDEX starts_by_key ON starts (tenant, key) WHERE key <> '';
CREATE INDEX starts_by_run ON starts (run_id);
CREATE INDEX starts_unanswered ON starts (tenant, caller, at DESC) WHERE answered = 0 AND key = '';
"""
_SCHEMA_11 = """
CREATE TABLE workers (
    owner TEXT PRIMARY KEY, kind TEXT NOT NULL, agents TEXT NOT NULL, started REAL NOT NULL, seen REAL NOT NULL
) WITHOUT ROWID;
"""
MIGRATIONS = (  # from each version of the tables to the next one
    _SCHEMA_1, _SCHEMA_2, _SCHEMA_3, _SCHEMA_4, _SCHEMA_5, _SCHEMA_6, _SCHEMA_7, _SCHEMA_8, _SCHEMA_9,
    _SCHEMA_10, _SCHEMA_11,
)  # fmt: skip
SCHEMA_VERSION = len(MIGRATIONS)
OLDEST_VERSION = 7
"""The oldest version of the tables whose code can use those of `SCHEMA_VERSION`."""

_SET_VERSIONS = """
CREATE TABLE IF NOT EXISTS penstock_log (version INTEGER NOT NULL);
DELETE FROM penstock_log;
INSERT INTO penstock_log VALUES ({version});
PRAGMA application_id = {application_id};
PRAGMA user_version = {oldest}
"""


def prepare(connection: sqlite3.Connection, path: str) -> None:
    """Create the tables, or upgrade those of an earlier version."""
    if versions_of(connection, path).version >= SCHEMA_VERSION:
        return
    connection.execute("PRAGMA auto_vacuum = INCREMENTAL")  # for a new file: that of deleted runs can be given back
    connection.execute("BEGIN IMMEDIATE")
    try:
        version = versions_of(connection, path).version
        if version < SCHEMA_VERSION:  # else another process has just done it
            versions = _SET_VERSIONS.format(
                version=SCHEMA_VERSION, oldest=OLDEST_VERSION, application_id=APPLICATION_ID
            )
            for statement in "".join([*MIGRATIONS[version:], versions]).split(";"):
                connection.execute(statement)
        connection.execute("COMMIT")
    finally:
        if connection.in_transaction:
            connection.execute("ROLLBACK")


def versions_of(connection: sqlite3.Connection, path: str) -> TableVersions:
    """The versions of the tables, 0 if there are none; a `StoreError` if this version cannot use the file."""
    [application], [oldest] = (
        connection.execute(f"PRAGMA {name}").fetchone() for name in ("application_id", "user_version")
    )
    tables = {name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    if application == APPLICATION_ID:
        version = oldest  # that of a file which no version with expansions has upgraded
        if "penstock_log" in tables:
            [[version]] = connection.execute("SELECT max(version) FROM penstock_log").fetchall()
        versions = TableVersions(int(version), int(oldest), SCHEMA_VERSION)
        versions.check(f"the log {path}")
        return versions
    if tables:
        raise StoreError(f"{path} is a database of another program, not a log: choose another file")
    return TableVersions(0, 0, SCHEMA_VERSION)
