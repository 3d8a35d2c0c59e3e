import { beforeEach, expect, test, vi } from "vitest";
import { event } from "./recorded-log";

/** The requests that wait for an answer, by path. */
const waiting = new Map<string, (body: unknown) => void>();
const streams: FakeStream[] = [];

class FakeStream {
  static readonly CLOSED = 2;
  readyState = 1;
  constructor(readonly url: string) {
    streams.push(this);
  }
  addEventListener(): void {}
  close(): void {
    this.readyState = FakeStream.CLOSED;
  }
}

vi.stubGlobal("location", { hash: "#a" });
vi.stubGlobal("EventSource", FakeStream);
vi.stubGlobal("fetch", (path: string) => {
  return new Promise((resolve) => {
    waiting.set(path, (body) =>
      resolve({ ok: true, status: 200, text: () => Promise.resolve(JSON.stringify(body)) }),
    );
  });
});

const { loadRun, refreshRun } = await import("../src/state/live-run");
const { go } = await import("../src/state/place");
const { detail, log } = await import("../src/state/shown-run");

/** Wait for a request; return the function that answers it. */
async function request(path: string): Promise<(body: unknown) => void> {
  const respond = await vi.waitUntil(() => waiting.get(path));
  waiting.delete(path);
  return respond;
}

const answer = async (path: string, body: unknown) => (await request(path))(body);

const entry = (number: number, key: string) => ({ number, event: event("AgentStarted", key, 0) });
const keys = () => log.value.map((each) => each.key);

async function finishLoading(run: string): Promise<void> {
  const loading = loadRun(run);
  await answer(`api/runs/${run}/log?after=0`, { events: [entry(1, `${run}1`)], next: null });
  await answer(`api/runs/${run}`, { id: run, status: "running" });
  await loading;
}

beforeEach(() => {
  waiting.clear();
  streams.length = 0;
});

test("a page of a run that is not shown any more is not added to the log of the next one", async () => {
  const loading = loadRun("a");
  await answer("api/runs/a/log?after=0", { events: [entry(1, "a1")], next: 1 });
  const respond = await request("api/runs/a/log?after=1");
  await finishLoading("b");
  respond({ events: [entry(2, "a2")], next: null });
  await loading;
  expect(keys()).toEqual(["b1"]);
});

test("a refresh that ends after another run was opened leaves that run as it is", async () => {
  go("a");
  await finishLoading("a");
  const refreshing = refreshRun("a");
  await answer("api/runs/a/log?after=1", { events: [entry(2, "a2")], next: null });
  const respond = await request("api/runs/a");
  go("b");
  await finishLoading("b");
  streams.at(-1)!.readyState = FakeStream.CLOSED;
  respond({ id: "a", status: "running" });
  await refreshing;
  expect(detail.value?.id).toBe("b");
  expect(streams.at(-1)!.url).toContain("runs/b/");
});
