/** The values of a run at an event: those it started with, and the changes until then. Pure. */
import type { Event } from "./events";

export interface ValuesAt {
  values: Map<string, unknown>;
  /** The values that the event itself set. */
  set: Set<string>;
  /** The values that the event itself deleted. */
  deleted: string[];
}

export function valuesAt(events: Event[], index: number): ValuesAt {
  const values = new Map<string, unknown>();
  let set = new Set<string>();
  let deleted: string[] = [];
  for (const event of events.slice(0, index + 1)) {
    const removed = event.value_changes?.removed ?? [];
    // Those of an answer take effect with it.
    const written = { ...event.values, ...event.value_changes?.written };
    deleted = removed.filter((name) => values.delete(name));
    set = new Set(Object.keys(written));
    for (const [name, value] of Object.entries(written)) values.set(name, value);
  }
  return { values, set, deleted };
}
