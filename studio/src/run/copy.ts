/** A run as text to use elsewhere: a curl command or a Python program; the server writes it as a test. */
import { type Event, textOf } from "../log/events";

export async function copyText(text: string): Promise<void> {
  if (navigator.clipboard) {
    await navigator.clipboard.writeText(text);
    return;
  }
  const area = document.createElement("textarea");
  area.value = text;
  document.body.append(area);
  area.select();
  document.execCommand("copy");
  area.remove();
}

const inputOf = (events: Event[]): string =>
  textOf((events[0]?.input ?? []).findLast((each) => each.role === "user")?.content);

/** A Python string literal; JSON's escapes are valid in Python. */
const py = (text: string): string => JSON.stringify(text);

const shell = (text: string): string => `'${text.replaceAll("'", "'\\''")}'`;

export function curlOf(events: Event[]): string {
  const body: Record<string, string> = { input: inputOf(events) };
  if (events[0]?.thread) body.thread = events[0].thread;
  const data = shell(JSON.stringify(body));
  return `curl -X POST http://127.0.0.1:8000/runs -H 'Content-Type: application/json' -d ${data}`;
}

export function pythonOf(events: Event[]): string {
  const thread = events[0]?.thread ? `, thread=${py(events[0].thread)}` : "";
  return [
    "import asyncio",
    "",
    "from batonkit import Runner",
    "",
    "from desk import team  # your root agent",
    "",
    "",
    "async def main() -> None:",
    `    async with Runner(team, store="runs.db") as runner:`,
    `        result = await runner.run(${py(inputOf(events))}${thread})`,
    "        print(result.output)",
    "",
    "",
    "asyncio.run(main())",
    "",
  ].join("\n");
}
