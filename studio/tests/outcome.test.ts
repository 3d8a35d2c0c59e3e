import { describe, expect, test } from "vitest";
import { isOutcome, outcomeOf, startOf, type Outcome } from "../src/log/outcome";

const question: Outcome = { kind: "unknown_outcome", tool: "pay", arguments: { euro: 5 } };

describe("outcome of a call", () => {
  test("is asked for by its kind", () => {
    expect(isOutcome(question)).toBe(true);
    expect(isOutcome({ kind: "approval" })).toBe(false);
    expect(isOutcome(null)).toBe(false);
  });
  test("is not chosen at first", () => expect(startOf(question)).toEqual({ choice: "", text: "" }));
  test("starts with the default of a fork", () => {
    const result = startOf({ ...question, default: { result: "paid 5" } });
    expect(outcomeOf(result)).toEqual({ result: "paid 5" });
    const error = startOf({ ...question, default: { error: "not made" } });
    expect(outcomeOf(error)).toEqual({ error: "not made" });
  });
  test("may be that it did not happen", () =>
    expect(outcomeOf({ choice: "run_again", text: "x" })).toEqual({ run_again: true }));
});
