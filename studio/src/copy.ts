/** A run as text to use elsewhere: a curl command, a Python program, a test with the same model responses. */
import { agentOf, callsOf, messageOf, textOf, type Event } from "./model";

export async function copyText(text: string): Promise<void> {
  if (navigator.clipboard) { await navigator.clipboard.writeText(text); return; }
  const area = document.createElement("textarea");
  area.value = text;
  document.body.append(area);
  area.select();
  document.execCommand("copy");
  area.remove();
}

const inputOf = (events: Event[]): string => textOf((events[0]?.input ?? []).findLast((each) => each.role === "user")?.content);
/** A Python string literal; JSON's escapes are valid in Python. */
const py = (text: string): string => JSON.stringify(text);
const shell = (text: string): string => `'${text.replaceAll("'", "'\\''")}'`;

export function curlOf(events: Event[]): string {
  const body: Record<string, string> = { input: inputOf(events) };
  if (events[0]?.thread) body.thread = events[0].thread;
  return `curl -X POST http://127.0.0.1:8000/runs -H 'Content-Type: application/json' -d ${shell(JSON.stringify(body))}`;
}

export function pythonOf(events: Event[]): string {
  const thread = events[0]?.thread ? `, thread=${py(events[0].thread)}` : "";
  return [
    "import asyncio", "", "from batonkit import Runner", "", "from desk import team  # your root agent", "", "",
    "async def main() -> None:", `    async with Runner(team, store="runs.db") as runner:`,
    `        result = await runner.run(${py(inputOf(events))}${thread})`, "        print(result.output)", "", "", "asyncio.run(main())", "",
  ].join("\n");
}

const pyValue = (value: unknown): string => {
  if (value === null || value === undefined) return "None";
  if (value === true) return "True";
  if (value === false) return "False";
  if (typeof value === "string") return py(value);
  if (Array.isArray(value)) return `[${value.map(pyValue).join(", ")}]`;
  if (typeof value === "object") return `{${Object.entries(value).map(([name, each]) => `${py(name)}: ${pyValue(each)}`).join(", ")}}`;
  return String(value);
};

/** A test that gives every agent the responses of this run and expects its path and answer. */
export function testOf(events: Event[]): string {
  const steps = new Map<string, string[]>();
  let answer = "";
  for (const event of events) {
    if (event.type !== "AgentResponded" || !event.model) continue;
    const calls = callsOf(event).map((call) => {
      let args: unknown = {};
      try { args = JSON.parse(call.arguments ?? "{}"); } catch { /* An invalid call is kept as text below. */ }
      const pairs = Object.entries(args as Record<string, unknown>);
      return pairs.every(([name]) => /^[A-Za-z_]\w*$/.test(name) && name !== "name") ? `call(${[py(call.name), ...pairs.map(([name, value]) => `${name}=${pyValue(value)}`)].join(", ")})` : `call(${py(call.name)}, **${pyValue(args)})`;
    });
    const text = textOf(messageOf(event)?.content);
    if (!calls.length) answer = text;
    const made = calls.length === 0 ? py(text) : calls.length === 1 && !text ? calls[0]! : `say(${[py(text), ...calls].join(", ")})`;
    const agent = agentOf(event);
    steps.set(agent, [...(steps.get(agent) ?? []), made]);
  }
  const path = events.filter((event) => event.type === "ControlTransferred").map((event) => event.target ?? "");
  const script = [...steps].map(([agent, made]) => `        ${py(agent)}: [\n${made.map((each) => `            ${each},`).join("\n")}\n        ],`).join("\n");
  return [
    "from batonkit import Runner", "from batonkit.log import ControlTransferred", "from batonkit.testing import ScriptedModel, call, say", "",
    "from desk import team  # your root agent", "", "", "async def test_the_run() -> None:", "    model = ScriptedModel({", script, "    })",
    `    result = await Runner(team, model=model).run(${py(inputOf(events))})`,
    `    assert [event.target for event in result.events if isinstance(event, ControlTransferred)] == ${pyValue(path)}`,
    ...(answer ? [`    assert result.output == ${py(answer)}`] : []), "",
  ].join("\n");
}
