/** The answers to the question whether a call happened that must happen once. */

/** What the question says: the payload of its event. */
export interface Outcome {
  kind: "unknown_outcome";
  tool: string;
  arguments: unknown;
  /** The run and the event that it was forked at, if the run is a fork. */
  forked_from?: string;
  default?: { result?: unknown; error?: string };
}

export type Choice = "result" | "error" | "run_again";

export interface OutcomeDraft {
  choice: Choice | "";
  text: string;
}

export const isOutcome = (payload: unknown): payload is Outcome =>
  (payload as { kind?: string } | null)?.kind === "unknown_outcome";

/** The form at first: nothing is chosen, unless the question has a default. */
export function startOf({ default: given }: Outcome): OutcomeDraft {
  if (given === undefined) return { choice: "", text: "" };
  if (given.error !== undefined) return { choice: "error", text: given.error };
  const { result } = given;
  return { choice: "result", text: typeof result === "string" ? result : JSON.stringify(result) };
}

export function outcomeOf({ choice, text }: OutcomeDraft): Record<string, unknown> {
  return choice === "run_again" ? { run_again: true } : { [choice]: text };
}
