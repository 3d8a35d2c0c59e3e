/** Requests to the server that served the page. */
import {
  type Comparison,
  type ReplayVerdict,
  type RequestView,
  type RunDetail,
  type RunUsage,
  type RunView,
  type Team,
  type ThreadEntry,
  type UsageReport,
} from "./schemas";
import { type Event } from "../log/events";

export class ApiError extends Error {
  constructor(
    readonly status: number,
    message: string,
  ) {
    super(message);
  }
}

async function request<T>(method: string, path: string, body?: unknown): Promise<T> {
  const headers: Record<string, string> =
    body === undefined ? {} : { "Content-Type": "application/json" };
  const answer = await fetch(path, {
    method,
    headers,
    body: body === undefined ? undefined : JSON.stringify(body),
  });
  if (answer.status === 204) return undefined as T;
  const text = await answer.text();
  if (!answer.ok) {
    let message = text;
    try {
      message = (JSON.parse(text) as { error: { message: string } }).error.message;
    } catch {
      /* Not JSON: shown as it is. */
    }
    throw new ApiError(answer.status, message);
  }
  return JSON.parse(text) as T;
}

const get = <T>(path: string): Promise<T> => request<T>("GET", path);

const id = encodeURIComponent;

const keyPath = (key: string): string => key.split("/").map(id).join("/");

export interface Config {
  version: string;
  can_write: boolean;
  root: string;
}

export interface RunQuery {
  q?: string;
  status?: string;
  agent?: string;
  thread?: string;
  owner?: string;
  min_cost?: string;
  since?: string;
  after?: string;
}

export interface Fork {
  at?: number;
  edit?: Record<string, unknown>;
  model?: string;
  message?: string;
  agent_options?: Record<string, { instructions?: string }>;
}

export const api = {
  config: () => get<Config>("config.json"),
  team: () => get<Team>("api/team"),
  runs: (query: RunQuery) => {
    const given = Object.entries(query).filter(([, value]) => value) as [string, string][];
    return get<{ runs: RunView[]; next: string }>(
      `api/runs?${new URLSearchParams([...given, ["limit", "100"]])}`,
    );
  },
  threads: () => get<{ threads: ThreadEntry[] }>("api/threads"),
  run: (run: string) => get<RunDetail>(`api/runs/${id(run)}`),
  log: (run: string, after = 0) =>
    get<{ events: { number: number; event: Event }[]; next: number | null }>(
      `api/runs/${id(run)}/log?after=${after}`,
    ),
  read: (run: string, key: string) => get<RequestView>(`api/runs/${id(run)}/reads/${keyPath(key)}`),
  test: (run: string) => get<{ source: string }>(`api/runs/${id(run)}/test`),
  runUsage: (run: string) => get<RunUsage>(`api/runs/${id(run)}/usage`),
  compare: (a: string, b: string) => get<Comparison>(`api/runs/${id(a)}/compare/${id(b)}`),
  usage: (by: string, since: number) =>
    get<UsageReport>(`api/usage?by=${by}${since ? `&since=${since}` : ""}`),
  start: (body: Record<string, unknown>) => request<RunDetail>("POST", "api/runs", body),
  answer: (run: string, answers: Record<string, unknown>) =>
    request<RunDetail>("POST", `api/runs/${id(run)}/answers`, { answers }),
  resume: (run: string) => request<RunDetail>("POST", `api/runs/${id(run)}/resume`, {}),
  cancel: (run: string) => request<RunDetail>("POST", `api/runs/${id(run)}/cancel`, {}),
  fork: (run: string, body: Fork) => request<RunDetail>("POST", `api/runs/${id(run)}/fork`, body),
  replay: (run: string) => request<ReplayVerdict>("POST", `api/runs/${id(run)}/replay`),
  remove: (run: string) => request<undefined>("DELETE", `api/runs/${id(run)}`),
};
