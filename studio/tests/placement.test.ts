import { describe, expect, test } from "vitest";
import type { Team } from "../src/api/schemas";
import { placeTeam } from "../src/team/placement";

const team = (edges: Record<string, string[]>): Team => ({
  root: Object.keys(edges)[0]!,
  findings: [],
  agents: Object.entries(edges).map(([name, targets]) => ({
    name,
    description: "",
    type: "Agent",
    tools: [],
    effects: {},
    sources: [],
    parts: [],
    estimated_tokens_per_call: null,
    edges: targets.map((target) => ({
      source: name,
      target,
      kind: "handoff" as const,
      via: "",
      returns: null,
      until: "answered",
    })),
  })),
});

describe("placement of a team", () => {
  test("has room for the edges that run around agents, and for those from an agent to itself", () => {
    const everyone = ["Alpha", "Beta", "Gamma", "Delta"];
    const { edges, box } = placeTeam(
      team(Object.fromEntries(everyone.map((name) => [name, everyone]))),
      true,
    );
    expect(edges).toHaveLength(16);
    for (const { points } of edges)
      for (const point of points) {
        expect(point.x).toBeGreaterThanOrEqual(box.x);
        expect(point.x).toBeLessThanOrEqual(box.x + box.width);
        expect(point.y).toBeGreaterThanOrEqual(box.y);
        expect(point.y).toBeLessThanOrEqual(box.y + box.height);
      }
  });
});
