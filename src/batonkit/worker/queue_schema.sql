-- The queue of one store: tables and functions beside procrastinate's, layout 2.
-- {queue} is the schema of the queue and {store} that of the store; the other names in braces are constants.

CREATE TABLE {queue}.baton_settings(
    id        integer PRIMARY KEY DEFAULT 1 CHECK (id = 1),  -- there is one row
    layout    integer NOT NULL,
    is_paused boolean NOT NULL DEFAULT false,                -- workers take no further runs
    per_owner integer,                                       -- runs of one owner that may be driven at once
    total     integer                                        -- runs that may be driven at once
);
INSERT INTO {queue}.baton_settings(layout) VALUES ({layout});
CREATE INDEX baton_jobs_by_owner ON {queue}.procrastinate_jobs((args ->> 'owner')) WHERE status IN ('todo', 'doing');

-- Add a job. A waiting one is moved forward instead of doubled. A job is never put back once it was fetched, only
-- deleted, so the queueing lock cannot be in the way.
CREATE FUNCTION {queue}.baton_add(
    a_run text, an_owner text, a_team text, a_priority integer, due timestamptz) RETURNS void
LANGUAGE sql SET search_path = {queue}, pg_temp AS $$
    INSERT INTO procrastinate_jobs(queue_name, task_name, priority, queueing_lock, args, scheduled_at)
    VALUES (coalesce(nullif(a_team, ''), {any_team}), {task}, a_priority, a_run,
        jsonb_build_object('run_id', a_run, 'owner', an_owner), due)
    ON CONFLICT (queueing_lock) WHERE status = 'todo' DO UPDATE
    SET scheduled_at = CASE WHEN excluded.scheduled_at IS NULL THEN NULL
            ELSE least(procrastinate_jobs.scheduled_at, excluded.scheduled_at) END,
        priority = excluded.priority, queue_name = excluded.queue_name
$$;

-- The runs that are driven, or about to be: those with a job, and those with a live lease, which the indexes find for
-- one owner. A run may be here twice.
CREATE VIEW {queue}.baton_busy_runs AS
    SELECT queueing_lock AS run_id, args ->> 'owner' AS owner, true AS is_job FROM {queue}.procrastinate_jobs
    WHERE status IN ('todo', 'doing') AND (scheduled_at IS NULL OR scheduled_at <= clock_timestamp())
    UNION ALL
    SELECT run_id, owner, false FROM {store}.baton_runs WHERE status = 'running' AND worker <> ''
        AND lease_until > extract(epoch FROM clock_timestamp());

-- Count the busy runs, of all owners for NULL. The job of a run that has just been driven is left out, as is that of the
-- run that asks. Their leases are not: a second job of a run ends at once while the first one drives it.
CREATE FUNCTION {queue}.baton_busy(an_owner text, besides text[]) RETURNS bigint
LANGUAGE plpgsql SET search_path = {queue}, pg_temp AS $$
BEGIN
    IF an_owner IS NULL THEN
        RETURN (SELECT count(DISTINCT run_id) FROM baton_busy_runs WHERE NOT (is_job AND run_id = ANY(besides)));
    END IF;
    RETURN (SELECT count(DISTINCT run_id) FROM baton_busy_runs
        WHERE owner = an_owner AND NOT (is_job AND run_id = ANY(besides)));
END
$$;

-- Add a job unless the limits are reached; return whether it was added. The lock of all owners comes before that of
-- one, so that two transactions never wait for each other.
CREATE FUNCTION {queue}.baton_offer(
    a_run text, an_owner text, a_team text, a_priority integer, besides text) RETURNS boolean
LANGUAGE plpgsql SET search_path = {queue}, pg_temp AS $$
DECLARE
    most record;
BEGIN
    SELECT per_owner, total INTO most FROM baton_settings;
    IF most.total IS NOT NULL THEN
        PERFORM pg_advisory_xact_lock({lock}, 0);
        IF baton_busy(NULL, ARRAY[a_run, besides]) >= most.total THEN
            RETURN false;
        END IF;
    END IF;
    IF most.per_owner IS NOT NULL AND an_owner <> '' THEN
        PERFORM pg_advisory_xact_lock({lock}, hashtext(an_owner));
        IF baton_busy(an_owner, ARRAY[a_run, besides]) >= most.per_owner THEN
            RETURN false;
        END IF;
    END IF;
    PERFORM baton_add(a_run, an_owner, a_team, a_priority, NULL);
    RETURN true;
END
$$;

-- The first waiting runs without a job, at most `most` of them; of all owners for NULL.
CREATE FUNCTION {queue}.baton_first_waiting(an_owner text, most integer)
RETURNS TABLE(run_id text, owner text, team text, priority integer, run bigint)
LANGUAGE plpgsql STABLE SET search_path = {queue}, pg_temp AS $$
#variable_conflict use_column
BEGIN
    IF an_owner IS NULL THEN
        RETURN QUERY SELECT r.run_id, q.owner, q.team, q.priority, q.run
            FROM {store}.baton_runnable q JOIN {store}.baton_runs r ON r.number = q.run
            WHERE q.wake_at = 0 AND NOT EXISTS (
                SELECT 1 FROM procrastinate_jobs j WHERE j.queueing_lock = r.run_id AND j.status = 'todo')
            ORDER BY q.priority DESC, q.run LIMIT most;
    ELSE
        RETURN QUERY SELECT r.run_id, q.owner, q.team, q.priority, q.run
            FROM {store}.baton_runnable q JOIN {store}.baton_runs r ON r.number = q.run
            WHERE q.owner = an_owner AND q.wake_at = 0 AND NOT EXISTS (
                SELECT 1 FROM procrastinate_jobs j WHERE j.queueing_lock = r.run_id AND j.status = 'todo')
            ORDER BY q.priority DESC, q.run LIMIT most;
    END IF;
END
$$;

-- The owners of waiting runs that have fewer busy runs than the limit for each, found in the index one after the other.
CREATE FUNCTION {queue}.baton_free_owners(per_owner integer, besides text) RETURNS SETOF text
LANGUAGE sql STABLE SET search_path = {queue}, pg_temp AS $$
    WITH RECURSIVE owners(name) AS (
        SELECT min(owner) FROM {store}.baton_runnable
        UNION ALL
        SELECT (SELECT min(owner) FROM {store}.baton_runnable WHERE owner > name) FROM owners WHERE name IS NOT NULL
    ), busy AS (
        SELECT owner, count(DISTINCT run_id) AS runs FROM baton_busy_runs WHERE NOT (is_job AND run_id = besides)
        GROUP BY owner)
    SELECT name FROM owners LEFT JOIN busy ON owner = name
    WHERE name IS NOT NULL AND (name = '' OR coalesce(runs, 0) < per_owner)
$$;

-- Add jobs for waiting runs that the limits kept out, as far as they allow. It reads as many of them as may be driven at
-- once, however many wait.
CREATE FUNCTION {queue}.baton_admit(an_owner text, besides text) RETURNS void
LANGUAGE plpgsql SET search_path = {queue}, pg_temp AS $$
DECLARE
    most record;
    waiting record;
BEGIN
    SELECT per_owner, total INTO most FROM baton_settings;
    IF most.total IS NULL THEN
        -- A run without an owner has had its job since it waits.
        FOR waiting IN SELECT * FROM baton_first_waiting(an_owner, most.per_owner) WHERE an_owner <> '' LOOP
            EXIT WHEN NOT baton_offer(waiting.run_id, waiting.owner, waiting.team, waiting.priority, besides);
        END LOOP;
    ELSIF most.per_owner IS NULL THEN
        FOR waiting IN SELECT * FROM baton_first_waiting(NULL, most.total) LOOP
            EXIT WHEN NOT baton_offer(waiting.run_id, waiting.owner, waiting.team, waiting.priority, besides);
        END LOOP;
    ELSE
        FOR waiting IN
            SELECT w.* FROM baton_free_owners(most.per_owner, besides) AS free(name),
                LATERAL baton_first_waiting(name, most.total) AS w
            ORDER BY w.priority DESC, w.run
        LOOP
            IF NOT baton_offer(waiting.run_id, waiting.owner, waiting.team, waiting.priority, besides) THEN
                EXIT WHEN baton_busy(NULL, ARRAY[besides]) >= most.total;
            END IF;
        END LOOP;
    END IF;
END
$$;

-- Delete the jobs of dead workers.
CREATE FUNCTION {queue}.baton_drop_stalled(seconds float8) RETURNS void
LANGUAGE sql SET search_path = {queue}, pg_temp AS $$
    DELETE FROM procrastinate_jobs j WHERE status = 'doing' AND NOT EXISTS (
        SELECT 1 FROM procrastinate_workers w
        WHERE w.id = j.worker_id AND w.last_heartbeat >= clock_timestamp() - make_interval(secs => seconds))
$$;

-- Add a job for every run that becomes runnable, in the transaction that makes it so.
CREATE FUNCTION {queue}.baton_enqueue() RETURNS trigger
LANGUAGE plpgsql SET search_path = {queue}, pg_temp AS $$
DECLARE
    run record;
BEGIN
    SELECT run_id, owner INTO run FROM {store}.baton_runs WHERE number = NEW.run;
    IF NEW.wake_at > 0 THEN
        PERFORM baton_add(run.run_id, run.owner, NEW.team, NEW.priority, to_timestamp(NEW.wake_at));
    ELSE
        PERFORM baton_offer(run.run_id, run.owner, NEW.team, NEW.priority, '');
    END IF;
    RETURN NULL;
END
$$;
CREATE OR REPLACE TRIGGER baton_enqueue AFTER INSERT OR UPDATE OF wake_at ON {store}.baton_runnable
FOR EACH ROW EXECUTE FUNCTION {queue}.baton_enqueue();

-- Delete the job of a deleted run, whose owner may have been erased.
CREATE FUNCTION {queue}.baton_forget() RETURNS trigger
LANGUAGE plpgsql SET search_path = {queue}, pg_temp AS $$
BEGIN
    DELETE FROM procrastinate_jobs WHERE queueing_lock = OLD.run_id AND status = 'todo';
    RETURN NULL;
END
$$;
CREATE OR REPLACE TRIGGER baton_forget AFTER DELETE ON {store}.baton_runs
FOR EACH ROW WHEN (OLD.status IN ('running', 'suspended')) EXECUTE FUNCTION {queue}.baton_forget();
