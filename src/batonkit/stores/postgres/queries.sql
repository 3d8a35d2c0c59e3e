-- The statements of a PostgreSQL store; `list` makes its own from its filters.
-- {columns} are the columns of a run's record, {inbox_columns} those of a waiting message. {batch} is a constant, so that
-- the planner knows it. Another name in braces stands for the query or the part of one with that name.

-- name: now
-- The server's clock, because the clocks of the workers may differ.
extract(epoch FROM clock_timestamp())::float8

-- name: statement_now
-- The server's clock when the statement began: only a value that does not change is looked up in an index.
extract(epoch FROM statement_timestamp())::float8

-- name: is_leased
-- Whether the lease of a run is valid. One with more than its seconds left is not: the clock was set back.
(lease_until > {now} AND lease_until <= {now} + lease_seconds + 1)

-- name: clock
-- Read the server's clock.
SELECT {now}

-- name: last_run
-- Find the newest run of a thread; the condition `<> ''` lets the planner use the index of threads.
SELECT run_id FROM baton_runs WHERE thread = %(thread)s AND thread <> '' ORDER BY number DESC LIMIT 1

-- name: create_run
-- Insert a run with its first lines and notes in one statement, unless messages wait or `expected` is not the last run
-- of the thread. Of two writers with the same predecessor, the index baton_thread_chains refuses one.
WITH now AS (SELECT {now} AS at, coalesce(({last_run}), '') AS last), begun AS (
    INSERT INTO baton_runs(
        run_id, status, seq, thread, previous, owner, created_at, updated_at, changed_at, worker, lease_until,
        lease_seconds, fence, cancel_requested, team, priority, wake_at, inbox, reader, origins, last_write)
    SELECT %(run_id)s, %(status)s, %(seq)s, %(thread)s, last, %(owner)s, at, at, at, %(worker)s, at + %(lease_seconds)s,
        %(lease_seconds)s, 1, '', %(team)s, %(priority)s, %(wake_at)s, %(inbox)s, %(reader)s, %(origins)s, %(write)s
    FROM now WHERE (%(expected)s::text IS NULL OR %(expected)s = last) AND (%(from_inbox)s OR %(thread)s = ''
        OR NOT EXISTS (SELECT 1 FROM baton_inbox WHERE thread = %(thread)s))
    RETURNING number, lease_until
), kept AS (
    INSERT INTO baton_pieces SELECT number, 0, %(piece)s FROM begun WHERE %(seq)s > 0
), noted AS (
    INSERT INTO baton_notes(run, name, note)
    SELECT number, name, note FROM begun, unnest(%(names)s::text[], %(notes)s::bytea[]) AS given(name, note)
), queued AS (
    INSERT INTO baton_runnable SELECT number, %(owner)s, %(team)s, %(priority)s, %(wake_at)s FROM begun WHERE
        (%(status)s = 'running' AND %(lease_seconds)s <= 0) OR (%(status)s = 'suspended' AND %(wake_at)s > 0))
SELECT lease_until FROM begun

-- name: append
-- Count new lines and store them, if the run has as many as the writer expects and the writer's fence. For nearly every
-- append: it changes nothing that another table depends on. A writer that lost its connection repeats the statement:
-- `last_write` shows whether its first attempt succeeded.
WITH moved AS (
    UPDATE baton_runs SET seq = seq + %(count)s, updated_at = {now}, reader = greatest(reader, %(reader)s),
        last_write = %(write)s
    WHERE run_id = %(run_id)s AND seq = %(expected_seq)s AND fence = coalesce(%(fence)s, fence)
        AND last_write <> %(write)s
    RETURNING number, cancel_requested, inbox
), kept AS (
    INSERT INTO baton_pieces SELECT number, %(expected_seq)s, %(piece)s FROM moved WHERE %(count)s > 0)
SELECT cancel_requested, inbox FROM moved

-- name: append_and_queue
-- Like `append`, and set the status, what depends on it and notes. The run becomes runnable, or stops being so, in the
-- same transaction. The lease ends only if the holder need not cancel the run.
WITH moved AS (
    UPDATE baton_runs SET seq = seq + %(count)s, updated_at = {now}, reader = greatest(reader, %(reader)s),
        last_write = %(write)s, status = coalesce(%(status)s, status),
        changed_at = CASE WHEN coalesce(%(status)s, status) = status THEN changed_at ELSE {now} END,
        wake_at = coalesce(%(wake_at)s, wake_at), cancel_requested = coalesce(%(no_cancel)s, cancel_requested),
        lease_until = CASE WHEN %(release)s AND coalesce(%(no_cancel)s, cancel_requested) = '' THEN 0
            ELSE lease_until END
    WHERE run_id = %(run_id)s AND seq = %(expected_seq)s AND fence = coalesce(%(fence)s, fence)
        AND last_write <> %(write)s
    RETURNING number, cancel_requested, inbox, owner, team, priority, wake_at,
        (status = 'running' AND NOT {is_leased}) OR (status = 'suspended' AND wake_at > 0) AS is_waiting
), kept AS (
    INSERT INTO baton_pieces SELECT number, %(expected_seq)s, %(piece)s FROM moved WHERE %(count)s > 0
), noted AS (
    INSERT INTO baton_notes(run, name, note)
    SELECT number, name, note FROM moved, unnest(%(names)s::text[], %(notes)s::bytea[]) AS given(name, note)
    ON CONFLICT (run, name) DO UPDATE SET note = excluded.note
), dropped AS (
    DELETE FROM baton_runnable USING moved WHERE run = number AND NOT is_waiting
), queued AS (
    INSERT INTO baton_runnable SELECT number, owner, team, priority, wake_at FROM moved WHERE is_waiting
    ON CONFLICT (run) DO UPDATE SET wake_at = excluded.wake_at)
SELECT cancel_requested, inbox FROM moved

-- name: load
-- Read the pieces of a log in order, from the one that contains the first wanted line, which may be in its middle.
SELECT seq, first, lines FROM baton_runs LEFT JOIN baton_pieces ON run = number AND first >= coalesce((
    SELECT max(first) FROM baton_pieces JOIN baton_runs ON run = number
    WHERE run_id = %(run_id)s AND first <= %(start)s), 0)
WHERE run_id = %(run_id)s ORDER BY first

-- name: record
-- Read the record of a run, its last write and the time.
SELECT last_write, {columns}, {now} FROM baton_runs WHERE run_id = %(run_id)s

-- name: locked_record
-- Read the record of a run that is to be copied, and keep the run from being deleted until the copy is stored.
{record} FOR KEY SHARE

-- name: thread_and_status
-- Read the thread and the status of a run.
SELECT thread, status FROM baton_runs WHERE run_id = %(run_id)s

-- name: busy_run
-- Find the unfinished run of a thread, of which the index allows one.
SELECT run_id, status FROM baton_runs
WHERE thread = %(thread)s AND thread <> '' AND status IN ('running', 'suspended')

-- name: lease
-- The fields of a lease, in their order.
run_id, worker, fence, lease_until, cancel_requested, inbox

-- name: acquire
-- Take the lease of a run that is free or held by the same worker. A suspended run stays runnable until its worker has
-- stored that it continues.
WITH taken AS (
    UPDATE baton_runs SET worker = %(worker)s, fence = fence + 1, lease_until = {now} + %(ttl)s,
        lease_seconds = %(ttl)s
    WHERE run_id = %(run_id)s AND (worker = %(worker)s OR NOT {is_leased})
    RETURNING number, status, {lease}
), dropped AS (
    DELETE FROM baton_runnable USING taken WHERE run = number AND status = 'running' AND %(ttl)s > 0)
SELECT {lease} FROM taken

-- name: renew
-- Extend many leases at once; those that were released stay so. Rows that another transaction has locked are left out,
-- so that one of them never delays the others.
UPDATE baton_runs SET lease_until = {now} + %(ttl)s, lease_seconds = %(ttl)s
WHERE number = ANY(ARRAY(
    SELECT number FROM unnest(%(run_ids)s::text[], %(fences)s::integer[]) AS held(id, held_fence)
    JOIN baton_runs ON run_id = id AND fence = held_fence AND lease_until > 0
    FOR NO KEY UPDATE OF baton_runs SKIP LOCKED))
RETURNING {lease}

-- name: renew_one
-- Extend a lease, and wait for a transaction that has locked its row.
UPDATE baton_runs SET lease_until = {now} + %(ttl)s, lease_seconds = %(ttl)s
WHERE run_id = %(run_id)s AND fence = %(fence)s AND lease_until > 0 RETURNING {lease}

-- name: release
-- End a lease; a run that is still running waits for another worker.
WITH freed AS (
    UPDATE baton_runs SET lease_until = 0 WHERE run_id = %(run_id)s AND fence = %(fence)s
    RETURNING number, status, owner, team, priority, wake_at)
INSERT INTO baton_runnable SELECT number, owner, team, priority, wake_at FROM freed WHERE status = 'running'
ON CONFLICT (run) DO NOTHING

-- name: request_cancel
-- Ask the driver of a run to stop; an earlier request to stop sooner stays.
UPDATE baton_runs SET cancel_requested = CASE WHEN cancel_requested = ANY(%(weaker)s) THEN %(when)s
    ELSE cancel_requested END
WHERE run_id = %(run_id)s AND status IN ('running', 'suspended') RETURNING number

-- name: is_free
-- Whether a worker may take a run.
NOT {is_leased} AND reader <= %(reader)s

-- name: is_free_in_queue
-- The same for a row of baton_runnable. A subquery instead of a join: whatever the planner expects, it looks the run up
-- by its number.
(SELECT {is_free} FROM baton_runs WHERE number = run)

-- name: is_wanted
-- Whether a run is of one of the teams; of any team for NULL.
(%(teams)s::text[] IS NULL OR team = ANY(%(teams)s))

-- name: waiting_now
-- Runs that wait for a worker.
SELECT run FROM baton_runnable WHERE wake_at = 0 AND {is_free_in_queue}
ORDER BY priority DESC, run LIMIT %(limit)s

-- name: waiting_now_by_team
-- Runs of some teams that wait for a worker, found team by team in the index.
SELECT run FROM unnest(%(teams)s::text[]) AS wanted(name), LATERAL (
    SELECT run FROM baton_runnable WHERE team = name AND wake_at = 0 AND {is_free_in_queue}
    ORDER BY priority DESC, run LIMIT %(limit)s) AS first

-- name: waiting_until
-- Runs whose time has come.
SELECT run FROM baton_runnable WHERE wake_at > 0 AND wake_at <= {statement_now} AND {is_wanted} AND {is_free_in_queue}
ORDER BY wake_at LIMIT %(limit)s

-- name: all_abandoned
-- Runs whose worker died; no more than workers drive at once.
SELECT number FROM baton_runs WHERE status = 'running' AND worker <> '' AND {is_wanted} AND wake_at <= {now} AND {is_free}

-- name: abandoned
-- The oldest ones of them.
{all_abandoned} ORDER BY number LIMIT %(limit)s

-- name: runnable
-- Select the runs to drive now. The array makes the planner look the records up by their numbers.
SELECT {columns}, {now} FROM baton_runs
WHERE number = ANY(ARRAY(({waiting_now}) UNION ({waiting_until}) UNION ({abandoned})))
ORDER BY priority DESC, number LIMIT %(limit)s

-- name: runnable_by_team
-- Select the runs of some teams to drive now.
SELECT {columns}, {now} FROM baton_runs
WHERE number = ANY(ARRAY(({waiting_now_by_team}) UNION ({waiting_until}) UNION ({abandoned})))
ORDER BY priority DESC, number LIMIT %(limit)s

-- name: waiting_without_owner
-- Runs of no owner that wait for a worker, and those whose time has come.
(SELECT run FROM baton_runnable WHERE owner = '' AND wake_at = 0 AND {is_wanted} AND {is_free_in_queue}
ORDER BY priority DESC, run LIMIT %(limit)s)
UNION ALL
(SELECT run FROM baton_runnable WHERE owner = '' AND wake_at > 0 AND wake_at <= {statement_now} AND {is_wanted}
    AND {is_free_in_queue}
ORDER BY wake_at LIMIT %(limit)s)

-- name: waiting_by_owner
-- The same for each owner. The recursive query jumps from one owner to the next in the index, so that the number of runs
-- that wait does not matter.
WITH RECURSIVE owners(name) AS (
    SELECT min(owner) FROM baton_runnable WHERE owner > ''
    UNION ALL
    SELECT (SELECT min(owner) FROM baton_runnable WHERE owner > name) FROM owners WHERE name IS NOT NULL)
SELECT run FROM owners, LATERAL (
    (SELECT run FROM baton_runnable WHERE owner = name AND wake_at = 0 AND {is_wanted} AND {is_free_in_queue}
    ORDER BY priority DESC, run LIMIT %(per_owner)s)
    UNION ALL
    (SELECT run FROM baton_runnable WHERE owner = name AND wake_at > 0 AND wake_at <= {statement_now} AND {is_wanted}
        AND {is_free_in_queue}
    ORDER BY wake_at LIMIT %(per_owner)s)) AS first

-- name: runnable_by_owner
-- Select the runs to drive now, of each owner as many as the limit leaves beside those that are driven.
SELECT {columns}, {now} FROM (
    SELECT {columns}, row_number() OVER (PARTITION BY owner ORDER BY priority DESC, number) AS place FROM baton_runs
    WHERE number = ANY(ARRAY(({waiting_without_owner}) UNION ({waiting_by_owner}) UNION ({all_abandoned})))) AS first
WHERE owner = '' OR place <= %(per_owner)s - coalesce((%(driven)s::jsonb ->> owner)::integer, 0)
ORDER BY priority DESC, number LIMIT %(limit)s

-- name: put_note
-- Set a note of a run; it keeps its place in the order of notes.
INSERT INTO baton_notes(run, name, note) SELECT number, %(name)s, %(note)s FROM baton_runs WHERE run_id = %(run_id)s
ON CONFLICT (run, name) DO UPDATE SET note = excluded.note RETURNING run

-- name: drop_note
-- Remove a note of a run; return the run, if it exists.
WITH dropped AS (
    DELETE FROM baton_notes USING baton_runs r WHERE run = r.number AND r.run_id = %(run_id)s AND name = %(name)s)
SELECT number FROM baton_runs WHERE run_id = %(run_id)s

-- name: notes
-- Read the notes of a run, but not those of Baton itself, which may be large.
SELECT name, note FROM baton_notes JOIN baton_runs r ON run = r.number
WHERE run_id = %(run_id)s AND name NOT LIKE 'baton.%%' ORDER BY baton_notes.number

-- name: read_notes
-- Read one note of each of several runs.
SELECT run_id, note FROM baton_notes JOIN baton_runs r ON run = r.number
WHERE run_id = ANY(%(run_ids)s) AND name = %(name)s

-- name: thread_notes
-- Read the runs of a thread, newest first, each with one note, in one statement for a whole page.
SELECT run_id, r.number, seq, note FROM baton_runs r LEFT JOIN baton_notes n ON n.run = r.number AND name = %(name)s
WHERE thread = %(thread)s AND thread <> '' AND r.number < %(before)s ORDER BY r.number DESC LIMIT %(limit)s

-- name: delete_run
-- Delete a run, unless its lease was acquired since it had a fence; its log, its notes and its place among the runnable
-- ones go with it.
DELETE FROM baton_runs WHERE run_id = %(run_id)s AND fence = coalesce(%(fence)s, fence) RETURNING number

-- name: expire
-- Delete a batch of old runs. Status by status, because the index is in order within each; rows that are locked, such as
-- those that another `expire` deletes, are left out.
DELETE FROM baton_runs WHERE number = ANY(ARRAY(
    SELECT number FROM unnest(%(status)s::text[]) AS wanted(name), LATERAL (
        SELECT number FROM baton_runs
        WHERE status = name AND changed_at <= {statement_now} - %(older_than)s AND NOT {is_leased}
        ORDER BY changed_at LIMIT {batch} FOR UPDATE SKIP LOCKED) AS old
    LIMIT {batch}))
RETURNING number

-- name: forks_of
-- Forks that hold data of an owner or a thread.
SELECT number FROM baton_runs WHERE origins <> '{}' AND origins @> ARRAY[%(origin)s] LIMIT {batch}

-- name: erase_owner
-- Delete a batch of the runs that hold data of an owner.
DELETE FROM baton_runs WHERE number = ANY(ARRAY(
    (SELECT number FROM baton_runs WHERE owner = %(owner)s LIMIT {batch}) UNION ({forks_of})))
RETURNING number

-- name: erase_thread
-- Delete a batch of the runs that hold data of a thread.
DELETE FROM baton_runs WHERE number = ANY(ARRAY(
    (SELECT number FROM baton_runs WHERE thread = %(thread)s AND thread <> '' LIMIT {batch}) UNION ({forks_of})))
RETURNING number

-- name: erase_inbox
-- Remove the waiting messages of an owner or a thread.
DELETE FROM baton_inbox WHERE (owner = %(owner)s AND owner <> '') OR (thread = %(thread)s AND thread <> '')

-- name: lock_inbox
-- Serialise the changes to a thread's inbox. Each later statement of the transaction sees what was committed before.
SELECT pg_advisory_xact_lock(1111577679, hashtext(%(thread)s))

-- name: inbox_state
-- What waits for a thread, as the records of its runs say it.
coalesce((SELECT CASE mode WHEN 'steer' THEN 'steer' ELSE 'waiting' END FROM baton_inbox
    WHERE thread = %(thread)s ORDER BY number LIMIT 1), '')

-- name: tell_thread
-- Store what waits in the record of the thread's unfinished run. It waits for an append in progress: either that append
-- returns the new state, or the run has finished for this statement.
UPDATE baton_runs SET inbox = {inbox_state}, cancel_requested = CASE
    WHEN %(mode)s = 'preempt' AND status = 'running' AND cancel_requested = '' THEN 'after_turn'
    ELSE cancel_requested END
WHERE thread = %(thread)s AND thread <> '' AND status IN ('running', 'suspended') RETURNING run_id

-- name: tell_run
-- Store what is left in the inbox in the record of the run that took messages.
UPDATE baton_runs SET inbox = {inbox_state} WHERE run_id = %(run_id)s RETURNING cancel_requested, inbox

-- name: enqueue
-- Add a waiting message.
INSERT INTO baton_inbox(run_id, thread, mode, owner, body, created_at, last_write)
VALUES (%(run_id)s, %(thread)s, %(mode)s, %(owner)s, %(body)s, {now}, %(write)s)

-- name: count_messages
-- Count the messages that wait for a thread.
SELECT count(*) FROM baton_inbox WHERE thread = %(thread)s

-- name: message
-- Read a waiting message and its last write.
SELECT last_write, {inbox_columns} FROM baton_inbox WHERE run_id = %(run_id)s

-- name: inbox
-- Read the messages that wait for a thread, oldest first.
SELECT {inbox_columns} FROM baton_inbox WHERE thread = %(thread)s ORDER BY number LIMIT %(limit)s

-- name: oldest_messages
-- Find the oldest messages of a thread without their bodies.
SELECT run_id, mode FROM baton_inbox WHERE thread = %(thread)s ORDER BY number LIMIT %(limit)s

-- name: drop_messages
-- Remove messages that were withdrawn or became a part of a log.
DELETE FROM baton_inbox WHERE run_id = ANY(%(run_ids)s)

-- name: idle_threads
-- Find threads with waiting messages and no unfinished run, oldest message first.
SELECT thread FROM baton_inbox i WHERE NOT EXISTS (
    SELECT 1 FROM baton_runs r WHERE r.thread = i.thread AND r.thread <> '' AND r.status IN ('running', 'suspended'))
GROUP BY thread ORDER BY min(number) LIMIT %(limit)s

-- name: channel_name
-- The name of the store's channel, which stores in other schemas of the database do not share.
'baton_' || left(md5(current_schema()), 16)

-- name: channel
-- Read the name of the channel, for LISTEN, which takes no expression.
SELECT {channel_name}

-- name: publish
-- Send messages to all processes that listen, in one statement.
SELECT pg_notify({channel_name}, message) FROM unnest(%(messages)s::text[]) AS message
