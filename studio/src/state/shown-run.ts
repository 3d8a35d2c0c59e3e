/** The log of the shown run, the chosen event, and what follows from them. */
import { computed, signal } from "@preact/signals";
import { type RunDetail } from "../api/schemas";
import { buildTimeline } from "../lanes/timeline";
import { type Event } from "../log/events";
import { go, place } from "./place";
import { order } from "./team";

export const detail = signal<RunDetail | null>(null);

export const log = signal<Event[]>([]);

/** The run that `log` belongs to: while another one is loaded, `runId` is ahead of it. */
export const loaded = signal("");

export const partial = signal<{ agent: string; text: string } | null>(null);

export const chosen = computed(() =>
  place.value.view === "run" ? Math.min(place.value.number, Math.max(log.value.length, 1)) - 1 : 0,
);

export const timeline = computed(() => buildTimeline(log.value, order.value));

export const isRunning = computed(() => {
  const last = log.value.at(-1)?.type ?? "";
  return (
    !!last &&
    !["RunCompleted", "RunSuspended", "RunFailed", "RunCancelled"].includes(last) &&
    detail.value?.status === "running"
  );
});

export const tab = signal<"read" | "diff" | "values" | "event" | "fork">("read");

export const axis = signal<"time" | "steps">("time");

export const zoom = signal(1);

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
