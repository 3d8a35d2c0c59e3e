import { describe, expect, test } from "vitest";
import type { Team } from "../src/api/schemas";
import { actingTools } from "../src/fork/acting-tools";
import { call, event } from "./recorded-log";

const desk = {
  name: "Desk",
  tools: ["pay", "note", "look", "go"],
  effects: { pay: "once", note: "idempotent", look: "read" },
  sources: [] as string[],
  edges: [{ via: "to_sales" }],
};
const team = (more: Partial<typeof desk> = {}) =>
  ({ root: "Desk", agents: [{ ...desk, ...more }], findings: [] }) as unknown as Team;
const responded = (key: string, ...names: string[]) =>
  event("AgentResponded", key, 1, "Desk", "1", {
    message: { role: "assistant", tool_calls: names.map((name) => call(name)) },
  });
const log = [
  event("RunStarted", "run", 0),
  responded("1/m1", "pay", "note"),
  event("ToolReturned", "1/m1.0", 1, "Desk"),
  event("ToolReturned", "1/m1.1", 1, "Desk"),
  responded("1/m2", "look", "to_sales", "find"),
  responded("1/m3", "note"),
];

describe("tools that act when a fork is run", () => {
  test("are those whose results were not copied", () => {
    expect(actingTools(log, 1, team())).toEqual({ asking: ["pay"], repeating: ["note"] });
    expect(actingTools(log, 3, team())).toEqual({ asking: [], repeating: ["note"] });
    expect(actingTools(log, 6, team()).asking).toEqual([]);
  });
  test("are those of the changed response", () =>
    expect(actingTools(log, 6, team(), ["pay"])).toEqual({ asking: ["pay"], repeating: [] }));
  test("may be tools of a toolset, which are not known", () =>
    expect(actingTools(log, 4, team({ sources: ["mcp"] })).repeating).toEqual(["find", "note"]));
});
