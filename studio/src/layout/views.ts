/** The main views of a run, and how much room there is for them. */
import { signal } from "@preact/signals";
import { remembered } from "../state/remembered";

export type RunViewName = "timeline" | "conversation" | "details";
/** The chosen view; the details of an event are a view of their own on narrow screens only. */
export const view = remembered<RunViewName>("view", "timeline");

/** Whether a media query matches, as a signal. */
function matching(query: string): { readonly value: boolean } {
  const list = matchMedia(query);
  const matches = signal(list.matches);
  list.addEventListener("change", () => (matches.value = list.matches));
  return matches;
}
/** On a phone only one pane is shown at a time. */
export const isNarrow = matching("(max-width: 700px)");
/** The inspector is below the log, not beside it. */
export const isStacked = matching("(max-width: 1000px)");
/** Whether a narrow screen shows the list of runs. */
export const isListOpen = signal(false);
