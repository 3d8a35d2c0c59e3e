-- The tables of one SQLite file, layout 1.

PRAGMA application_id = 0x4241544F;  -- "BATO": other files are refused
PRAGMA user_version = 1;             -- the layout

-- One row for each run. `RunRecord` says what the columns mean for users of a store.
CREATE TABLE runs(
    number           INTEGER PRIMARY KEY,          -- the order of creation; never a time, because clocks are set back
    run_id           TEXT NOT NULL UNIQUE,
    owner            TEXT NOT NULL DEFAULT '',     -- the tenant, if any
    origins          TEXT NOT NULL DEFAULT '[]',   -- JSON: the owners and threads that a fork descends from, for `erase`
    team             TEXT NOT NULL DEFAULT '',     -- the hash of the team that created it
    thread           TEXT NOT NULL,                -- '' if it belongs to no thread
    previous         TEXT NOT NULL DEFAULT '',     -- the run before it in its thread
    inbox            TEXT NOT NULL DEFAULT '',     -- what waits for its thread: '', 'waiting' or 'steer'
    reader           INTEGER NOT NULL DEFAULT 1,   -- the version that a reader of its log must have
    status           TEXT NOT NULL,
    created_at       REAL NOT NULL,                -- times are seconds since the epoch, by the store's clock
    updated_at       REAL NOT NULL,                -- the last append
    changed_at       REAL NOT NULL DEFAULT 0,      -- the last change of status
    seq              INTEGER NOT NULL,             -- the number of lines in its log
    worker           TEXT NOT NULL,                -- who holds the lease, or held it last
    lease_until      REAL NOT NULL,                -- 0 once the lease was released
    lease_seconds    REAL NOT NULL DEFAULT 0,      -- a lease with more than this left is not valid: the clock was set back
    fence            INTEGER NOT NULL,             -- grows with each lease; appends with an older one are refused
    cancel_requested TEXT NOT NULL,                -- '', or when the driver is to stop
    priority         INTEGER NOT NULL DEFAULT 0,
    wake_at          REAL NOT NULL DEFAULT 0       -- when a worker may drive it; 0 for no such time
);
CREATE INDEX runs_by_time ON runs(created_at, number);
CREATE INDEX runs_by_change ON runs(changed_at, number);
CREATE INDEX runs_by_status ON runs(status, number);
CREATE INDEX runs_by_thread ON runs(thread, number) WHERE thread <> '';
CREATE INDEX runs_by_owner ON runs(owner, number) WHERE owner <> '';
CREATE INDEX runs_with_origins ON runs(number) WHERE origins <> '[]';
-- For `runnable`, which workers call all the time.
CREATE INDEX open_runs ON runs(priority DESC, number)
    WHERE status = 'running' OR (status = 'suspended' AND wake_at > 0);
CREATE INDEX open_runs_by_owner ON runs(owner, priority DESC, number)
    WHERE status = 'running' OR (status = 'suspended' AND wake_at > 0);
-- For `expire`.
CREATE INDEX ended_runs ON runs(changed_at) WHERE status IN ('completed', 'failed', 'cancelled');
-- A thread has one unfinished run at most.
CREATE UNIQUE INDEX busy_threads ON runs(thread) WHERE thread != '' AND status IN ('running', 'suspended');
-- A run has one successor at most.
CREATE UNIQUE INDEX thread_chains ON runs(thread, previous) WHERE thread <> '';

-- The logs. A piece holds the lines of one append and their checksum.
CREATE TABLE pieces(
    place INTEGER PRIMARY KEY,  -- number of the run * 2^24 + number of the first line: pieces of a run are neighbours
    lines BLOB NOT NULL
);

-- Bytes by name beside the log of a run.
CREATE TABLE notes(
    number INTEGER PRIMARY KEY,  -- the order in which the notes of a run are listed
    run    INTEGER NOT NULL,
    name   TEXT NOT NULL,
    note   BLOB NOT NULL,
    UNIQUE(run, name)
);

-- Messages that wait for the unfinished run of their thread.
CREATE TABLE inbox(
    number     INTEGER PRIMARY KEY,   -- the order in which they are handled
    run_id     TEXT NOT NULL UNIQUE,  -- of the run that a message becomes, unless it steers another one
    thread     TEXT NOT NULL,
    mode       TEXT NOT NULL,         -- 'queue', 'steer' or 'preempt'
    owner      TEXT NOT NULL,
    body       BLOB NOT NULL,         -- the message and the options of its run
    created_at REAL NOT NULL
);
CREATE INDEX inbox_by_thread ON inbox(thread, number);
