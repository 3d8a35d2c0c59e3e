/** The place in the URL: a run and an event, or another page. */
import { computed, signal } from "@preact/signals";

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

/** Read the place from the URL. */
export function readPlace(): void {
  const next = parsePlace(location.hash);
  if (JSON.stringify(next) !== JSON.stringify(place.value)) place.value = next;
}

export const runId = computed(() => (place.value.view === "run" ? place.value.run : ""));

export function go(run: string, number?: number): void {
  location.hash = number === undefined ? run : `${run}@${number}`;
  // Not only at `hashchange`, which comes later: the next key counts from here.
  readPlace();
}
