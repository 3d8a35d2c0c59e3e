/** The list of runs and threads, with search. */
import { useEffect, useRef } from "preact/hooks";
import { signal } from "@preact/signals";
import { api } from "../api/requests";
import { ago } from "../formats";
import { RunItem } from "./run-item";
import { place } from "../state/place";
import { Problem } from "../elements";
import { isHelpOpen } from "../keyboard";
import { Separator } from "../layout/separator";
import { isListOpen, isNarrow } from "../layout/views";
import { attempt } from "../state/problems";
import { loadRuns, nextPage, query, queryProblem, runs, threads } from "../state/runs";
import { config } from "../state/team";
import { changeTheme } from "../state/theme";
import { Status } from "../status";

const STATUSES = ["running", "suspended", "completed", "failed", "cancelled"];

const TIMES: [string, number][] = [
  ["Any time", 0],
  ["Last hour", 3600],
  ["Last day", 86400],
  ["Last week", 604800],
];

const filters = signal(false);

export function Sidebar() {
  const list = useRef<HTMLUListElement>(null);
  const view = place.value.view;
  useEffect(() => {
    const timer = setTimeout(() => void attempt(() => loadRuns()), 180);
    return () => clearTimeout(timer);
  }, [query.value]);
  const set = (part: Record<string, string>): void => {
    query.value = { ...query.value, ...part };
  };
  const onKey = (event: KeyboardEvent): void => {
    if (event.key !== "ArrowDown" && event.key !== "ArrowUp") return;
    const links = [...list.current!.querySelectorAll("a")];
    const at = links.indexOf(document.activeElement as HTMLAnchorElement);
    links[
      Math.min(Math.max(at + (event.key === "ArrowDown" ? 1 : -1), 0), links.length - 1)
    ]?.focus();
    event.preventDefault();
  };
  const closeList = (event: MouseEvent): void => {
    if ((event.target as Element).closest("a")) isListOpen.value = false;
  };
  const isFiltered = Object.values(query.value).some(Boolean);
  return (
    <nav class={`sidebar ${isListOpen.value ? "open" : ""}`} aria-label="Runs">
      <div class="brand">
        <svg viewBox="0 0 20 20" aria-hidden="true">
          <rect x="2" y="8.2" width="16" height="3.6" rx="1.8" transform="rotate(-32 10 10)" />
        </svg>
        <b>Baton</b>
        <span>Studio</span>
        {isNarrow.value && (
          <button
            class="plain runs"
            aria-expanded={isListOpen.value}
            onClick={() => (isListOpen.value = !isListOpen.value)}
          >
            Runs
          </button>
        )}
        <button
          class="plain"
          title="Keyboard shortcuts"
          aria-label="Keyboard shortcuts"
          onClick={() => (isHelpOpen.value = true)}
        >
          ?
        </button>
        <button
          class="plain"
          title="Change the theme"
          aria-label="Change the theme"
          onClick={changeTheme}
        >
          ◐
        </button>
      </div>
      <div class="views">
        {config.value.can_write && (
          <a href="#/new" aria-current={view === "new" ? "page" : undefined}>
            New run
          </a>
        )}
        {config.value.can_write && (
          <a href="#/team" aria-current={view === "team" ? "page" : undefined}>
            Team
          </a>
        )}
        <a href="#/usage" aria-current={view === "usage" ? "page" : undefined}>
          Usage
        </a>
        <a href="#/report" aria-current={view === "report" ? "page" : undefined}>
          Reports
        </a>
      </div>
      <label class="find">
        <svg viewBox="0 0 16 16" aria-hidden="true">
          <circle cx="7" cy="7" r="4.5" />
          <path d="m10.5 10.5 3 3" />
        </svg>
        <input
          type="search"
          placeholder="Find runs, threads, words"
          aria-label="Find runs"
          value={query.value.q ?? ""}
          onInput={(event) => set({ q: event.currentTarget.value })}
          onKeyDown={onKey}
        />
        <kbd>/</kbd>
      </label>
      <div class="count">
        <span role="tablist" aria-label="List">
          <button role="tab" aria-selected={!threads.value} onClick={() => (threads.value = null)}>
            Runs
          </button>
          <button
            role="tab"
            aria-selected={!!threads.value}
            onClick={() =>
              void attempt(async () => {
                threads.value = (await api.threads()).threads;
              })
            }
          >
            Threads
          </button>
        </span>
        <button
          class="plain"
          aria-expanded={filters.value}
          onClick={() => (filters.value = !filters.value)}
        >
          {isFiltered ? "Filter ·" : "Filter"}
        </button>
      </div>
      {filters.value && (
        <div class="filters">
          <select
            aria-label="Status"
            value={query.value.status ?? ""}
            onChange={(event) => set({ status: event.currentTarget.value })}
          >
            <option value="">Any status</option>
            {STATUSES.map((each) => (
              <option>{each}</option>
            ))}
          </select>
          <select
            aria-label="Time"
            onChange={(event) =>
              set({
                since: Number(event.currentTarget.value)
                  ? String(Math.round(Date.now() / 1000 - Number(event.currentTarget.value)))
                  : "",
              })
            }
          >
            {TIMES.map(([name, seconds]) => (
              <option value={seconds}>{name}</option>
            ))}
          </select>
          <input
            aria-label="Agent"
            placeholder="Agent"
            value={query.value.agent ?? ""}
            onInput={(event) => set({ agent: event.currentTarget.value })}
          />
          <input
            aria-label="Thread"
            placeholder="Thread"
            value={query.value.thread ?? ""}
            onInput={(event) => set({ thread: event.currentTarget.value })}
          />
          <input
            aria-label="Owner"
            placeholder="Owner"
            value={query.value.owner ?? ""}
            onInput={(event) => set({ owner: event.currentTarget.value })}
          />
          <input
            aria-label="Least cost"
            placeholder="Least cost"
            inputMode="decimal"
            aria-invalid={queryProblem.value.includes("`min_cost`")}
            value={query.value.min_cost ?? ""}
            onInput={(event) => set({ min_cost: event.currentTarget.value })}
          />
          <Problem text={queryProblem.value} />
        </div>
      )}
      <ul ref={list} onKeyDown={onKey} onClick={closeList}>
        {threads.value
          ? threads.value.map((thread) => (
              <li>
                <a href={`#${thread.last_run}`}>
                  <Status of={thread.status} />
                  <span class="what">{thread.text || thread.id}</span>
                  <time>{ago(thread.updated_at)}</time>
                  <span class="path">
                    <code>{thread.id}</code>
                  </span>
                  <span class="fee">
                    {thread.runs} {thread.runs === 1 ? "run" : "runs"}
                  </span>
                </a>
              </li>
            ))
          : runs.value.map((run) => <RunItem run={run} key={run.id} />)}
        {!threads.value && !runs.value.length && (
          <li class="empty">{isFiltered ? "No run matches." : "No runs yet."}</li>
        )}
        {!threads.value && nextPage.value && (
          <li>
            <button onClick={() => void attempt(() => loadRuns(true))}>Show more</button>
          </li>
        )}
      </ul>
      {!isNarrow.value && (
        <Separator pane="sidebar" label="Width of the list of runs" axis="x" resizes="around" />
      )}
    </nav>
  );
}
