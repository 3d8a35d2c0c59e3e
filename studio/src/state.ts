/** The state of the page: the place in the URL, the runs, the log of the shown run, and live updates. */
import { batch, computed, effect, signal } from "@preact/signals";
import { api, exported, type Config, type RunQuery } from "./api";
import {
  speakers,
  type Event,
  type RequestView,
  type RunDetail,
  type RunView,
  type Team,
  type ThreadEntry,
} from "./model";
import { buildTimeline } from "./timeline";

export type Place =
  | { view: "run"; run: string; number: number }
  | { view: "compare"; first: string; second: string }
  | { view: "team" | "usage" | "new" | "report" }
  | { view: "home" };

export function parsePlace(hash: string): Place {
  const text = decodeURIComponent(hash.replace(/^#/, ""));
  const parts = text.split("/");
  if (parts[0] === "" && parts[1] === "compare" && parts[2] && parts[3])
    return { view: "compare", first: parts[2], second: parts[3] };
  if (
    parts[0] === "" &&
    (parts[1] === "team" || parts[1] === "usage" || parts[1] === "new" || parts[1] === "report")
  )
    return { view: parts[1] };
  const [run, number] = text.split("@");
  return run && !run.startsWith("/")
    ? { view: "run", run, number: Math.max(1, Number(number) || 1) }
    : { view: "home" };
}

export const place = signal<Place>(parsePlace(location.hash));
export const config = signal<Config>({ version: "", can_write: false, root: "" });
export const team = signal<Team>({ root: "", agents: [], findings: [] });
export const runs = signal<RunView[]>([]);
export const nextPage = signal("");
export const threads = signal<ThreadEntry[] | null>(null);
export const query = signal<RunQuery>({});
export const detail = signal<RunDetail | null>(null);
export const log = signal<Event[]>([]);
export const partial = signal<{ agent: string; text: string } | null>(null);
export const problem = signal("");
export const tab = signal<"read" | "diff" | "event" | "fork">("read");
export const axis = signal<"time" | "steps">("time");
export const zoom = signal(1);
export const theme = signal(storedTheme());

function storedTheme(): string {
  try {
    return localStorage.getItem("theme") ?? "";
  } catch {
    return "";
  }
}
effect(() => {
  if (theme.value) document.documentElement.dataset.theme = theme.value;
  else delete document.documentElement.dataset.theme;
  try {
    localStorage.setItem("theme", theme.value);
  } catch {
    /* Storage may be unavailable, as in a file. */
  }
});

export const runId = computed(() => (place.value.view === "run" ? place.value.run : ""));
export const chosen = computed(() =>
  place.value.view === "run" ? Math.min(place.value.number, Math.max(log.value.length, 1)) - 1 : 0,
);
const order = computed(() => team.value.agents.map((agent) => agent.name));
const speaker = computed(() => speakers(log.value));
export const timeline = computed(() => buildTimeline(log.value, order.value));
/** One colour per agent everywhere: by its place in the team, or by its name if the team is unknown. */
export function tone(agent: string): string {
  if (!agent) return "tone0";
  const known = order.value.indexOf(agent);
  if (known >= 0) return `tone${(known % 8) + 1}`;
  let hash = 0;
  for (const char of agent) hash = (hash * 31 + char.charCodeAt(0)) >>> 0;
  return `tone${(hash % 8) + 1}`;
}
export const isRunning = computed(() => {
  const last = log.value.at(-1)?.type ?? "";
  return (
    !!last &&
    !["RunCompleted", "RunSuspended", "RunFailed", "RunCancelled"].includes(last) &&
    detail.value?.status === "running"
  );
});

export function go(run: string, number?: number): void {
  location.hash = number === undefined ? run : `${run}@${number}`;
}
export function step(by: number): void {
  if (place.value.view === "run")
    go(place.value.run, Math.min(Math.max(chosen.value + by, 0), log.value.length - 1) + 1);
}
export function stepTransfer(by: number): void {
  if (place.value.view !== "run") return;
  for (let index = chosen.value + by; index >= 0 && index < log.value.length; index += by) {
    const event = log.value[index]!;
    if (event.type === "ControlTransferred" || event.is_transfer_refused) {
      go(place.value.run, index + 1);
      return;
    }
  }
}

/** Do what the user asked for; a message about something earlier goes away. */
export async function attempt(action: () => Promise<void>): Promise<boolean> {
  problem.value = "";
  return update(action);
}
/** Do what nobody asked for, such as a refresh: a message that the user has not read yet stays. */
async function update(action: () => Promise<void>): Promise<boolean> {
  try {
    await action();
    return true;
  } catch (error) {
    problem.value = error instanceof Error ? error.message : String(error);
    return false;
  }
}

/** The recorded requests that were read, by run and key: a finished run's never change. */
const reads = new Map<string, Promise<RequestView>>();
export function readRequest(run: string, key: string): Promise<RequestView> {
  if (exported) {
    const found = exported.requests.find((each) => each.key === key);
    return found
      ? Promise.resolve(found)
      : Promise.reject(new Error("the log has no recorded request for this response"));
  }
  const name = `${run}\n${key}`;
  let known = reads.get(name);
  if (!known) {
    known = api.read(run, key);
    reads.set(name, known);
    known.catch(() => reads.delete(name));
  }
  return known;
}

/** The run that `log` belongs to: while another one is loaded, `runId` is ahead of it. */
export const loaded = signal("");
let stream: EventSource | null = null;
let loading = 0;
let timer = 0;
export async function loadRun(run: string): Promise<void> {
  const turn = ++loading;
  stream?.close();
  partial.value = null;
  if (exported) {
    loaded.value = run;
    log.value = exported.events;
    detail.value = exported.run;
    return;
  }
  const page = await api.log(run);
  if (turn !== loading) return;
  batch(() => {
    loaded.value = run;
    log.value = page.events.map((each) => each.event);
  });
  detail.value = null;
  performance.mark("log");
  let after = page.next;
  while (after !== null && turn === loading) {
    const more = await api.log(run, after);
    log.value = [...log.value, ...more.events.map((each) => each.event)];
    after = more.next;
  }
  const found = await api.run(run);
  if (turn !== loading) return;
  detail.value = found;
  if (found.status === "running") listen(run, turn);
}

/** Read what was added to the log since; the frames of the stream only say when. */
export async function refreshRun(run: string): Promise<void> {
  const turn = loading;
  const follow = chosen.value === log.value.length - 1 && log.value.length > 1;
  const page = await api.log(run, log.value.length);
  if (turn !== loading || run !== runId.value) return;
  if (page.events.length) {
    const known = log.value.length;
    log.value = [
      ...log.value,
      ...page.events.filter((each) => each.number > known).map((each) => each.event),
    ];
    if (follow) {
      history.replaceState(null, "", `#${run}@${log.value.length}`);
      place.value = parsePlace(location.hash);
    }
  }
  detail.value = await api.run(run);
  if (detail.value.status === "running" && (!stream || stream.readyState === EventSource.CLOSED))
    listen(run, turn);
}

function listen(run: string, turn: number): void {
  stream?.close();
  const source = (stream = new EventSource(
    `api/runs/${encodeURIComponent(run)}/events?after=${log.value.length}`,
  ));
  const soon = (): void => {
    clearTimeout(timer);
    timer = window.setTimeout(() => {
      if (turn === loading) void update(() => refreshRun(run));
    }, 60);
  };
  for (const kind of [
    "AgentStarted",
    "AgentResponded",
    "ToolReturned",
    "ControlTransferred",
    "InterruptRaised",
    "InterruptAnswered",
    "AgentFinished",
    "StepCompleted",
    "UserMessageAdded",
  ])
    source.addEventListener(kind, () => {
      if (kind === "AgentResponded") partial.value = null;
      soon();
    });
  for (const kind of ["RunCompleted", "RunSuspended", "RunFailed", "RunCancelled"])
    source.addEventListener(kind, () => {
      source.close();
      partial.value = null;
      soon();
    });
  source.addEventListener("TextDelta", (frame) => {
    const delta = JSON.parse((frame as MessageEvent<string>).data) as {
      origin: Event["origin"];
      text: string;
    };
    const agent = speaker.value(delta.origin);
    if (agent === null) return;
    partial.value = {
      agent,
      text: (partial.value?.agent === agent ? partial.value.text : "") + delta.text,
    };
  });
  source.addEventListener("ResponseRestarted", () => (partial.value = null));
}

export async function loadRuns(more = false): Promise<void> {
  const page = await api.runs({ ...query.value, after: more ? nextPage.value : "" });
  runs.value = more ? [...runs.value, ...page.runs] : page.runs;
  nextPage.value = page.next;
}

/** Keep the list of runs up to date while the page is open. */
export function watchRuns(): void {
  let pending = 0;
  new EventSource("api/events").addEventListener("run", (frame) => {
    const changed = JSON.parse((frame as MessageEvent<string>).data) as RunView;
    runs.value = runs.value.map((each) =>
      each.id === changed.id ? { ...changed, summary: each.summary } : each,
    );
    clearTimeout(pending);
    pending = window.setTimeout(() => void update(() => loadRuns()), 400);
    if (
      changed.id === runId.value &&
      detail.value &&
      (changed.events ?? 0) > log.value.length &&
      !isRunning.value
    )
      void update(() => refreshRun(changed.id));
  });
}

export async function open(): Promise<void> {
  addEventListener("hashchange", () => (place.value = parsePlace(location.hash)));
  if (exported) {
    team.value = exported.team;
    if (place.value.view !== "run") place.value = { view: "run", run: exported.run.id, number: 1 };
    await loadRun(exported.run.id);
    return;
  }
  let shown = "";
  const first =
    place.value.view === "run"
      ? attempt(() => loadRun((shown = runId.value)))
      : Promise.resolve(true);
  effect(() => {
    const run = runId.value;
    if (run && run !== shown) {
      shown = run;
      zoom.value = 1;
      log.value = [];
      detail.value = null;
      void attempt(() => loadRun(run));
    }
  });
  await attempt(async () => {
    [config.value, team.value] = await Promise.all([api.config(), api.team()]);
    if (!config.value.can_write) team.value = { root: "", agents: [], findings: [] };
  });
  await first;
  await attempt(() => loadRuns());
  watchRuns();
  if (place.value.view === "home" && runs.value[0]) go(runs.value[0].id);
}
