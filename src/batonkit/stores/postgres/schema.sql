-- The tables of a store in one schema of a PostgreSQL database, layout 1.
-- Columns without a comment mean the same as in ../sqlite/schema.sql.

-- No index may contain lease_until, updated_at or seq, not even in its condition: renewals and appends stay HOT updates.
CREATE TABLE baton_runs(
    number           bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    run_id           text COLLATE "C" NOT NULL CONSTRAINT baton_run_ids UNIQUE,
    owner            text NOT NULL DEFAULT '',
    origins          text[] NOT NULL DEFAULT '{}',
    team             text NOT NULL DEFAULT '',
    thread           text NOT NULL,
    previous         text COLLATE "C" NOT NULL DEFAULT '',
    inbox            text NOT NULL DEFAULT '',
    reader           integer NOT NULL DEFAULT 1,
    status           text NOT NULL,
    created_at       float8 NOT NULL,
    updated_at       float8 NOT NULL,
    changed_at       float8 NOT NULL DEFAULT 0,
    seq              integer NOT NULL,
    last_write       bigint NOT NULL,  -- a random number: a writer that lost the server's answer recognises its write
    worker           text NOT NULL,
    lease_until      float8 NOT NULL,
    lease_seconds    float8 NOT NULL DEFAULT 0,
    fence            integer NOT NULL,
    cancel_requested text NOT NULL,
    priority         integer NOT NULL DEFAULT 0,
    wake_at          float8 NOT NULL DEFAULT 0
) WITH (fillfactor = 50);  -- Half of each page is free, so that renewing the leases of all its runs stays HOT.
CREATE INDEX baton_runs_by_time ON baton_runs(created_at, number);
CREATE INDEX baton_runs_by_change ON baton_runs(changed_at, number);
CREATE INDEX baton_runs_by_status ON baton_runs(status, number);
CREATE INDEX baton_runs_by_status_and_time ON baton_runs(status, created_at, number);
CREATE INDEX baton_runs_by_status_and_change ON baton_runs(status, changed_at, number);
CREATE INDEX baton_runs_by_thread ON baton_runs(thread, number) WHERE thread <> '';
CREATE INDEX baton_runs_by_owner ON baton_runs(owner, number);
CREATE INDEX baton_runs_by_origin ON baton_runs USING gin (origins) WHERE origins <> '{}';
-- For `runnable`: a run whose worker died has no row in baton_runnable.
CREATE INDEX baton_runs_driven ON baton_runs(number) WHERE status = 'running' AND worker <> '';
-- For the limits of owners: the runs of one owner that are driven are few, however many it has.
CREATE INDEX baton_runs_driven_by_owner ON baton_runs(owner) WHERE status = 'running' AND worker <> '';
-- A thread has one unfinished run at most.
CREATE UNIQUE INDEX baton_busy_threads ON baton_runs(thread) WHERE thread <> '' AND status IN ('running', 'suspended');
-- A run has one successor at most.
CREATE UNIQUE INDEX baton_thread_chains ON baton_runs(thread, previous) WHERE thread <> '';

-- The runs that wait for a worker. A narrow table of its own, because all workers poll it and the queue has a trigger
-- on it: a row is written and deleted in the transaction that makes its run wait or stop waiting.
CREATE TABLE baton_runnable(
    run      bigint PRIMARY KEY REFERENCES baton_runs ON DELETE CASCADE,
    owner    text NOT NULL,
    team     text NOT NULL,
    priority integer NOT NULL,
    wake_at  float8 NOT NULL
);
CREATE INDEX baton_runnable_now ON baton_runnable(priority DESC, run) WHERE wake_at = 0;
CREATE INDEX baton_runnable_by_team ON baton_runnable(team, priority DESC, run) WHERE wake_at = 0;
CREATE INDEX baton_runnable_later ON baton_runnable(wake_at) WHERE wake_at > 0;
CREATE INDEX baton_runnable_by_owner ON baton_runnable(owner, wake_at, priority DESC, run);

-- The logs. A piece holds the lines of one append and their checksum.
CREATE TABLE baton_pieces(
    run   bigint NOT NULL REFERENCES baton_runs ON DELETE CASCADE,
    first integer NOT NULL,  -- the number of its first line
    lines bytea NOT NULL,
    PRIMARY KEY (run, first)
);

-- Bytes by name beside the log of a run.
CREATE TABLE baton_notes(
    number bigint GENERATED ALWAYS AS IDENTITY,
    run    bigint NOT NULL REFERENCES baton_runs ON DELETE CASCADE,
    name   text NOT NULL,
    note   bytea NOT NULL,
    PRIMARY KEY (run, name)
);

-- Messages that wait for the unfinished run of their thread.
CREATE TABLE baton_inbox(
    number     bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    run_id     text COLLATE "C" NOT NULL UNIQUE,
    thread     text NOT NULL,
    mode       text NOT NULL,
    owner      text NOT NULL,
    body       bytea NOT NULL,
    created_at float8 NOT NULL,
    last_write bigint NOT NULL
);
CREATE INDEX baton_inbox_by_thread ON baton_inbox(thread, number);

-- The layout of these tables.
CREATE TABLE baton_layout(version integer NOT NULL);
INSERT INTO baton_layout VALUES (1);
