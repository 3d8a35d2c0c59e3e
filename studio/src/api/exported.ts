/** The run inside an exported page, which sends no requests. */
import { type RequestView, type RunDetail, type Team } from "./schemas";
import { type Event } from "../log/events";

export interface Exported {
  run: RunDetail;
  events: Event[];
  requests: RequestView[];
  team: Team;
  test: string;
}

const embedded = typeof document === "undefined" ? null : document.getElementById("exported-run");

export const exported: Exported | null = embedded
  ? (JSON.parse(embedded.textContent ?? "null") as Exported)
  : null;
