import { describe, expect, test } from "vitest";
import { conversation, lineAt, type Line } from "../src/conversation/lines";
import { speakers } from "../src/conversation/speakers";
import { call, event, log } from "./recorded-log";

const said = (text: string) => ({ message: { role: "assistant", content: text } });
const calls = (...names: string[]) => ({
  message: { role: "assistant", tool_calls: names.map((name) => call(name)) },
});
/** The lines as text; those of nested agents are a list. */
const shown = (lines: Line[]): unknown[] =>
  lines.map((line) => {
    if (line.kind === "moved") return `${line.from} → ${line.to}`;
    if (line.kind === "inside") return [line.call || `in ${line.who}`, ...shown(line.lines)];
    return `${line.who}: ${line.text}`;
  });

const nested = [
  log[0]!,
  event("AgentStarted", "1/start", 0, "Flow"),
  event("AgentStarted", "1/0/1/start", 0, "Step", "1/0/1"),
  event("AgentResponded", "1/0/1/m1", 1, "Step", "1/0/1", said("first")),
  event("AgentFinished", "1/0/1/end", 1, "Step", "1/0/1"),
  event("AgentStarted", "1/1/1/start", 1, "Desk", "1/1/1"),
  event("AgentResponded", "1/1/1/m1", 1, "Desk", "1/1/1", calls("pick")),
  event("AgentStarted", "1/1/1/m1.0/1/start", 1, "Pick", "1/1/1/m1.0/1", {
    opens: { kind: "new" },
  }),
  event("ControlTransferred", "1/1/1/m1.0/1/to", 1, "Pick", "1/1/1/m1.0/1", {
    source: "Pick",
    target: "Pick2",
  }),
  event("AgentStarted", "1/1/1/m1.0/2/start", 1, "Pick2", "1/1/1/m1.0/2"),
  event("AgentResponded", "1/1/1/m1.0/2/m1", 1, "Pick2", "1/1/1/m1.0/2", said("red")),
  event("ToolReturned", "1/1/1/m1.0", 1, "Desk", "1/1/1", { tool_name: "pick" }),
  event("AgentResponded", "1/1/1/m2", 2, "Desk", "1/1/1", said("last")),
  event("AgentFinished", "1/1/1/end", 2, "Desk", "1/1/1"),
  event("AgentFinished", "1/end", 2, "Flow"),
  event("AgentStarted", "2/start", 2, "Closer", "2"),
  event("AgentResponded", "2/m1", 3, "Closer", "2", said("bye")),
];

describe("conversation", () => {
  test("has the words of the user and of the agents that hold control, questions and transfers", () =>
    expect(shown(conversation(log))).toEqual([
      ": hi",
      "Desk → Sales",
      "Sales: sure?",
      ": true",
      "Sales: Done.",
    ]));
  test("keeps what nested agents said inside what ran them, and answers as the agent around them", () =>
    expect(shown(conversation(nested))).toEqual([
      ": hi",
      ["in Flow", "Step: first", ["pick()", "Pick → Pick2", "Pick2: red"], "Desk: last"],
      "Flow: last",
      "Closer: bye",
    ]));
  test("is folded once the nested agents have finished", () => {
    const inside = (lines: Line[]) => lines.flatMap((line) => (line.kind === "inside" ? line : []));
    expect(inside(conversation(nested)).map((line) => line.isFinished)).toEqual([true]);
    expect(inside(conversation(nested.slice(0, 13))).map((line) => line.isFinished)).toEqual([
      false,
    ]);
  });
  test("takes the answer of the last branch, in whichever order they end", () => {
    const branch = (place: number, agent: string) => [
      event("AgentStarted", `1/${place}/1/start`, 0, agent, `1/${place}/1`, {
        opens: { kind: "branch" },
      }),
      event("AgentResponded", `1/${place}/1/m1`, 1, agent, `1/${place}/1`, said(agent)),
      event("AgentFinished", `1/${place}/1/end`, 1, agent, `1/${place}/1`),
    ];
    const start = [log[0]!, event("AgentStarted", "1/start", 0, "Both")];
    const end = event("AgentFinished", "1/end", 2, "Both");
    const lines = conversation([...start, ...branch(10, "Late"), ...branch(9, "Early"), end]);
    expect(shown(lines).at(-1)).toBe("Both: Late");
  });
  test("has one line for each event", () => {
    const lines = conversation(nested);
    const at = (index: number) => shown([lineAt(lines, index)!])[0];
    expect(at(0)).toBe(": hi");
    expect(at(11)).toBe("Pick2: red");
    expect(at(12)).toBe("Flow: last");
    expect(at(99)).toBe("Closer: bye");
  });
  test("lets no agent that runs as a tool speak while it streams", () => {
    expect(speakers(nested)(["1/1/1/m1.0/2", "Pick2", null])).toBeNull();
    expect(speakers(nested)(["1/1/1", "Desk", null])).toBe("Flow");
  });
});
