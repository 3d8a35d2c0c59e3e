/** What the server says about itself: its team, and what may be changed. */
import { computed, signal } from "@preact/signals";
import { type Config } from "../api/requests";
import { type Team } from "../api/schemas";

export const config = signal<Config>({ version: "", can_write: false, root: "" });

export const team = signal<Team>({ root: "", agents: [], findings: [] });

export const order = computed(() => team.value.agents.map((agent) => agent.name));

/** One colour per agent everywhere: by its place in the team, or by its name if the team is unknown. */
export function tone(agent: string): string {
  if (!agent) return "tone0";
  const known = order.value.indexOf(agent);
  if (known >= 0) return `tone${(known % 8) + 1}`;
  let hash = 0;
  for (const char of agent) hash = (hash * 31 + char.charCodeAt(0)) >>> 0;
  return `tone${(hash % 8) + 1}`;
}
