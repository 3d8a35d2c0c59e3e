/** The list of runs. */
import { signal } from "@preact/signals";
import { ApiError, type RunQuery, api } from "../api/requests";
import { type RunView, type ThreadEntry } from "../api/schemas";
import { refreshRun } from "./live-run";
import { runId } from "./place";
import { update } from "./problems";
import { detail, isRunning, log } from "./shown-run";

export const runs = signal<RunView[]>([]);

export const nextPage = signal("");

export const threads = signal<ThreadEntry[] | null>(null);

export const query = signal<RunQuery>({});

/** What is wrong with the query; the message names the parameter. */
export const queryProblem = signal("");

export async function loadRuns(more = false): Promise<void> {
  try {
    const page = await api.runs({ ...query.value, after: more ? nextPage.value : "" });
    runs.value = more ? [...runs.value, ...page.runs] : page.runs;
    nextPage.value = page.next;
    queryProblem.value = "";
  } catch (error) {
    if (!(error instanceof ApiError) || error.status !== 422) throw error;
    queryProblem.value = error.message;
  }
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
