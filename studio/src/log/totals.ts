/** The tokens and cost of a run. */
import { type Event } from "./events";

export function totals(events: Event[]): {
  tokens: number;
  cost: number;
  cached: number;
  unpriced: number;
} {
  let tokens = 0;
  let cost = 0;
  let cached = 0;
  let unpriced = 0;
  for (const { usage } of events)
    if (usage) {
      tokens += (usage.input_tokens ?? 0) + (usage.output_tokens ?? 0);
      cost += usage.cost ?? 0;
      cached += usage.cached_tokens ?? 0;
      unpriced += usage.unpriced_calls ?? 0;
    }
  return { tokens, cost, cached, unpriced };
}
