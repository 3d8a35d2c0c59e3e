-- The statements of an SQLite store; `list` makes its own from its filters.
-- {columns} are the columns of a run's record, {inbox_columns} those of a waiting message. {max_lines} is the factor in
-- the place of a piece. Another name in braces stands for the query with that name.

-- name: create_run
-- Insert a run. The unique indexes refuse an id that is taken, a second unfinished run and a second successor.
INSERT INTO runs(
    run_id, status, seq, thread, previous, owner, created_at, updated_at, changed_at, worker, lease_until,
    lease_seconds, fence, cancel_requested, team, priority, wake_at, inbox, reader, origins)
VALUES (
    :run_id, :status, :seq, :thread, :previous, :owner, :created_at, :updated_at, :changed_at, :worker, :lease_until,
    :lease_seconds, :fence, :cancel_requested, :team, :priority, :wake_at, :inbox, :reader, :origins)

-- name: append
-- Count new lines, if the run has as many as the writer expects and the writer's fence. For nearly every append: it sets
-- no column that an index has, so that two pages of the file change instead of six.
UPDATE runs SET seq = seq + :count, updated_at = :now, reader = max(reader, :reader)
WHERE run_id = :run_id AND seq = :expected_seq AND fence = coalesce(:fence, fence)
RETURNING number, cancel_requested, inbox

-- name: append_and_change
-- Like `append`, and set the status and what depends on it. The lease ends only if the holder need not cancel the run.
UPDATE runs SET seq = seq + :count, updated_at = :now, reader = max(reader, :reader),
    status = coalesce(:status, status),
    changed_at = iif(coalesce(:status, status) = status, changed_at, :now),
    wake_at = coalesce(:wake_at, wake_at),
    cancel_requested = coalesce(:no_cancel, cancel_requested),
    lease_until = iif(:release AND coalesce(:no_cancel, cancel_requested) = '', 0.0, lease_until)
WHERE run_id = :run_id AND seq = :expected_seq AND fence = coalesce(:fence, fence)
RETURNING number, cancel_requested, inbox

-- name: add_piece
-- Store the lines of one append at the end of their log.
INSERT INTO pieces VALUES (:run * {max_lines} + :first, :lines)

-- name: log_position
-- Find the number of a run, which the places of its pieces contain, and the number of its lines.
SELECT number, seq FROM runs WHERE run_id = :run_id

-- name: first_place
-- Find the piece that contains a line, which may be in the middle of it; the place of the line itself if there is none.
SELECT coalesce(max(place), :origin) FROM pieces WHERE place BETWEEN :origin AND :origin + :start

-- name: load
-- Read the pieces of a log in order. The cast makes a damaged row come as bytes, so that the checksum detects it.
SELECT place - :origin, coalesce(CAST(lines AS BLOB), x'') FROM pieces
WHERE place BETWEEN :place AND :origin + {max_lines} - 1 ORDER BY place

-- name: record
-- Read the record of a run.
SELECT {columns} FROM runs WHERE run_id = :run_id

-- name: last_run
-- Find the newest run of a thread; the condition `<> ''` lets SQLite use the index of threads.
SELECT run_id FROM runs WHERE thread = :thread AND thread <> '' ORDER BY number DESC LIMIT 1

-- name: busy_run
-- Find the unfinished run of a thread, of which the index allows one.
SELECT run_id, status FROM runs WHERE thread = :thread AND status IN ('running', 'suspended')

-- name: is_open
-- Whether a run may have to be driven, as the indexes for `runnable` have it.
(status = 'running' OR (status = 'suspended' AND wake_at > 0))

-- name: is_runnable
-- Whether a run is to be driven now. A lease with more than its seconds left is not valid: the clock was set back.
{is_open} AND wake_at <= :now AND NOT lease_until - :now BETWEEN 1e-9 AND lease_seconds + 1 AND reader <= :reader
    AND (:teams IS NULL OR team IN (SELECT value FROM json_each(:teams)))

-- name: runnable
-- Select the runs to drive now. Left to itself, SQLite would read and sort all that wait instead of using the index.
SELECT {columns} FROM runs INDEXED BY open_runs WHERE {is_runnable} ORDER BY priority DESC, number LIMIT :limit

-- name: runnable_by_owner
-- Select the runs to drive now, of each owner as many as the limit leaves beside those that are driven (JSON). The
-- recursive query jumps from one owner to the next in the index, so that the number of runs that wait does not matter.
WITH RECURSIVE owners(name) AS (
    SELECT min(owner) FROM runs INDEXED BY open_runs_by_owner WHERE {is_open} AND owner > ''
    UNION ALL
    SELECT (SELECT min(owner) FROM runs INDEXED BY open_runs_by_owner WHERE {is_open} AND owner > name)
    FROM owners WHERE name IS NOT NULL
), first(run) AS (
    SELECT * FROM (
        SELECT number FROM runs INDEXED BY open_runs_by_owner WHERE {is_runnable} AND owner = ''
        ORDER BY priority DESC, number LIMIT :limit)
    UNION ALL
    SELECT runs.number FROM owners CROSS JOIN runs WHERE runs.number IN (
        SELECT number FROM runs INDEXED BY open_runs_by_owner WHERE {is_runnable} AND owner = name
        ORDER BY priority DESC, number LIMIT :per_owner)
)
SELECT {columns} FROM (
    SELECT {columns}, row_number() OVER (PARTITION BY owner ORDER BY priority DESC, number) AS place
    FROM first CROSS JOIN runs ON number = run)
WHERE owner = '' OR place <= :per_owner - coalesce((SELECT value FROM json_each(:driven) WHERE key = owner), 0)
ORDER BY priority DESC, number LIMIT :limit

-- name: update_lease
-- Store what leases, requests to cancel and messages change in a record that was read in the same transaction.
UPDATE runs SET worker = :worker, lease_until = :lease_until, lease_seconds = :lease_seconds, fence = :fence,
    cancel_requested = :cancel_requested, inbox = :inbox
WHERE run_id = :run_id

-- name: renew
-- Extend many leases at once, which are JSON pairs of a run's id and a fence; those that were released stay so.
UPDATE runs SET lease_until = :until, lease_seconds = :ttl FROM json_each(:leases) AS lease
WHERE run_id = lease.value ->> 0 AND fence = lease.value ->> 1 AND lease_until > 0
RETURNING run_id, worker, fence, cancel_requested, inbox

-- name: put_note
-- Set a note of a run; it keeps its place in the order of notes.
INSERT INTO notes(run, name, note) VALUES (:run, :name, :note)
ON CONFLICT(run, name) DO UPDATE SET note = excluded.note

-- name: drop_note
-- Remove a note of a run.
DELETE FROM notes WHERE run = :run AND name = :name

-- name: notes
-- Read the notes of a run, but not those of Baton itself, which may be large. The cast makes a damaged note come as bytes.
SELECT name, CAST(note AS BLOB) FROM notes WHERE run = (SELECT number FROM runs WHERE run_id = :run_id)
    AND name NOT LIKE 'baton.%' ORDER BY notes.number

-- name: read_notes
-- Read one note of each of several runs, whose ids are JSON.
SELECT run_id, CAST(note AS BLOB) FROM json_each(:run_ids) JOIN runs ON run_id = value
JOIN notes ON run = runs.number AND name = :name

-- name: thread_notes
-- Read the runs of a thread, newest first, each with one note, in one statement for a whole page.
SELECT run_id, runs.number, seq, CAST(note AS BLOB) FROM runs LEFT JOIN notes ON run = runs.number AND name = :name
WHERE thread = :thread AND thread <> '' AND runs.number < :before ORDER BY runs.number DESC LIMIT :limit

-- name: enqueue
-- Add a waiting message. The unique index refuses an id that another one has.
INSERT INTO inbox(run_id, thread, mode, owner, body, created_at)
VALUES (:run_id, :thread, :mode, :owner, :body, :created_at)

-- name: message
-- Read a waiting message.
SELECT {inbox_columns} FROM inbox WHERE run_id = :run_id

-- name: inbox
-- Read the messages that wait for a thread, oldest first.
SELECT {inbox_columns} FROM inbox WHERE thread = :thread ORDER BY number LIMIT :limit

-- name: oldest_messages
-- Find the oldest messages of a thread without their bodies.
SELECT run_id, mode FROM inbox WHERE thread = :thread ORDER BY number LIMIT :limit

-- name: count_messages
-- Count the messages that wait for a thread.
SELECT count(*) FROM inbox WHERE thread = :thread

-- name: drop_message
-- Remove a message that was withdrawn or became a part of a log.
DELETE FROM inbox WHERE run_id = :run_id

-- name: set_inbox
-- Store in the record of a run what waits for its thread.
UPDATE runs SET inbox = :inbox WHERE run_id = :run_id

-- name: idle_threads
-- Find threads with waiting messages and no unfinished run, oldest message first.
SELECT thread FROM inbox WHERE NOT EXISTS (
    SELECT 1 FROM runs WHERE runs.thread = inbox.thread AND runs.thread <> '' AND status IN ('running', 'suspended'))
GROUP BY thread ORDER BY min(number) LIMIT :limit

-- name: old_ended_runs
-- Select finished runs for `expire`. The statuses are literals, because SQLite matches only those with the index.
SELECT number FROM runs
WHERE status IN ('completed', 'failed', 'cancelled') AND changed_at <= :changed_before AND lease_until <= :now
LIMIT :limit

-- name: old_runs
-- Select runs with any statuses, which are JSON, for `expire`.
SELECT number FROM runs
WHERE status IN (SELECT value FROM json_each(:statuses)) AND changed_at <= :changed_before AND lease_until <= :now
LIMIT :limit

-- name: forks_of
-- Select the forks that hold data of an owner or a thread.
SELECT number FROM runs WHERE origins <> '[]' AND EXISTS (SELECT 1 FROM json_each(origins) WHERE value = :origin)

-- name: runs_of_owner
-- Select the runs that hold data of an owner, for `erase`.
SELECT number FROM runs WHERE owner = :name AND owner <> '' UNION {forks_of} LIMIT :limit

-- name: runs_of_thread
-- Select the runs that hold data of a thread, for `erase`.
SELECT number FROM runs WHERE thread = :name AND thread <> '' UNION {forks_of} LIMIT :limit

-- name: drop_messages_of_owner
-- Remove the waiting messages of an owner.
DELETE FROM inbox WHERE owner = :name

-- name: drop_messages_of_thread
-- Remove the messages that wait for a thread.
DELETE FROM inbox WHERE thread = :name

-- name: run_to_delete
-- Find the number of a run that is to be deleted, unless its lease was acquired since it had a fence.
SELECT number FROM runs WHERE run_id = :run_id AND fence = coalesce(:fence, fence)

-- name: delete_run
-- Delete the record of a run.
DELETE FROM runs WHERE number = :number

-- name: delete_notes
-- Delete the notes of a run.
DELETE FROM notes WHERE run = :number

-- name: delete_pieces
-- Delete the log of a run.
DELETE FROM pieces WHERE place BETWEEN :number * {max_lines} AND :number * {max_lines} + {max_lines} - 1
