/** The shown run is loaded, and followed while it runs. */
import { batch, computed } from "@preact/signals";
import { exported } from "../api/exported";
import { api } from "../api/requests";
import { speakers } from "../conversation/speakers";
import { type Event } from "../log/events";
import { readPlace, runId } from "./place";
import { update } from "./problems";
import { chosen, detail, loaded, log, partial } from "./shown-run";

const speaker = computed(() => speakers(log.value));

/** Events after which the log is read again; `AgentResponded` also ends the partial response. */
const CHANGES = [
  "AgentStarted",
  "AgentResponded",
  "ToolReturned",
  "ControlTransferred",
  "InterruptRaised",
  "InterruptAnswered",
  "AgentFinished",
  "StepCompleted",
  "UserMessageAdded",
];
const STOPS = ["RunCompleted", "RunSuspended", "RunFailed", "RunCancelled"];

let stream: EventSource | null = null;

/** The number of the newest load: a response to an earlier one is for a run that is not shown any more. */
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
  while (after !== null) {
    const more = await api.log(run, after);
    if (turn !== loading) return;
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
      readPlace();
    }
  }
  const found = await api.run(run);
  if (turn !== loading) return;
  detail.value = found;
  if (found.status === "running" && (!stream || stream.readyState === EventSource.CLOSED))
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
  for (const kind of CHANGES)
    source.addEventListener(kind, () => {
      if (kind === "AgentResponded") partial.value = null;
      soon();
    });
  for (const kind of STOPS)
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
