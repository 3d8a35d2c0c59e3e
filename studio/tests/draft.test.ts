import { describe, expect, test } from "vitest";
import { draftOf, editOf } from "../src/fork/draft";
import { log } from "./recorded-log";

describe("draft of a fork", () => {
  const before = draftOf(log[2]!);
  test("changes nothing at first", () =>
    expect(editOf(before, draftOf(log[2]!))).toEqual({ edit: undefined, problems: {} }));
  test("has other calls", () => {
    const after = { ...before, calls: [{ name: "stay", arguments: '{"b": 2}' }] };
    expect(editOf(before, after).edit).toEqual({
      content: "",
      tool_calls: [{ name: "stay", arguments: { b: 2 } }],
    });
  });
  test("says which call has invalid arguments", () => {
    const calls = [...before.calls, { name: "stay", arguments: "{b: 2}" }];
    expect(editOf(before, { ...before, calls }).problems).toEqual({
      "call 1": expect.stringContaining("This is not JSON") as string,
    });
  });
});
