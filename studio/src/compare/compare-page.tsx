/** Two runs side by side: the common beginning folded, the first difference marked, and their ends. */
import { useEffect, useState } from "preact/hooks";
import { api } from "../api/requests";
import { type Comparison } from "../api/schemas";
import { count, duration, money } from "../formats";
import { describe } from "../log/descriptions";
import { type Event, agentOf } from "../log/events";
import { attempt } from "../state/problems";
import { tone } from "../state/team";
import { Words } from "../words";

interface Loaded {
  comparison: Comparison;
  first: Event[];
  second: Event[];
}

const PAGE = 300;

async function load(first: string, second: string): Promise<Loaded> {
  const [comparison, ours, theirs] = await Promise.all([
    api.compare(first, second),
    api.log(first),
    api.log(second),
  ]);
  return {
    comparison,
    first: ours.events.map((each) => each.event),
    second: theirs.events.map((each) => each.event),
  };
}

const outputText = (output: unknown): string =>
  typeof output === "string" ? output : output == null ? "" : JSON.stringify(output, null, 2);

function Column({ events, from, run }: { events: Event[]; from: number; run: string }) {
  return (
    <ol start={from + 1}>
      {events.slice(from, from + PAGE).map((event, offset) => {
        const [kind, text] = describe(event);
        return (
          <li class={`${tone(agentOf(event))} ${offset === 0 ? "differs" : ""}`}>
            <a href={`#${run}@${from + offset + 1}`}>
              <span class="number">{from + offset + 1}</span>
              <i class="dot" />
              <span class="who">{agentOf(event) || "run"}</span>
              <span class="kind">{kind}</span>
              <span class="text">{text}</span>
            </a>
          </li>
        );
      })}
    </ol>
  );
}

export function Compare({ first, second }: { first: string; second: string }) {
  const [loaded, setLoaded] = useState<Loaded | null>(null);
  useEffect(() => {
    setLoaded(null);
    void attempt(async () => {
      setLoaded(await load(first, second));
    });
  }, [first, second]);
  if (!loaded)
    return (
      <main class="page">
        <h1>Compare</h1>
      </main>
    );
  const { comparison } = loaded;
  const sides = [comparison.first, comparison.second];
  const [before, after] = sides.map((side) => outputText(side.output)) as [string, string];
  const shared = comparison.shared;
  const change = (a: number, b: number, show: (value: number) => string): string =>
    `${show(b)}${a === b ? "" : ` (${b > a ? "+" : "−"}${show(Math.abs(b - a))})`}`;
  const tokens = sides.map(
    (side) => (side.usage.input_tokens ?? 0) + (side.usage.output_tokens ?? 0),
  );
  const costs = sides.map((side) => side.usage.cost ?? 0);
  const rows: [string, string, string][] = [
    ["Path", comparison.first.path.join(" → "), comparison.second.path.join(" → ")],
    [
      "Events",
      count(comparison.first.events),
      change(comparison.first.events, comparison.second.events, count),
    ],
    ["Time", duration(comparison.first.seconds), duration(comparison.second.seconds)],
    ["Tokens", count(tokens[0]!), change(tokens[0]!, tokens[1]!, count)],
    ...(costs[0] || costs[1]
      ? [
          ["Cost", money(costs[0]!), change(costs[0]!, costs[1]!, money)] as [
            string,
            string,
            string,
          ],
        ]
      : []),
  ];
  return (
    <main class="page">
      <h1>Compare</h1>
      <table class="numbers">
        <thead>
          <tr>
            <td />
            <th class="run">
              <a href={`#${first}`}>
                <code>{first}</code>
              </a>
            </th>
            <th class="run">
              <a href={`#${second}`}>
                <code>{second}</code>
              </a>
            </th>
          </tr>
        </thead>
        <tbody>
          {rows.map(([name, a, b]) => (
            <tr>
              <th scope="row">{name}</th>
              <td>{a}</td>
              <td>{b}</td>
            </tr>
          ))}
        </tbody>
      </table>
      <h2>Answers</h2>
      {before === after ? (
        <section class="msg same">
          <p>{before || "Neither has an answer."}</p>
        </section>
      ) : (
        <section class="msg">
          <Words before={before} after={after} />
        </section>
      )}
      {sides.map(
        (side) =>
          side.output == null &&
          before !== after && (
            <p class="lead">
              <code>{side.id}</code> has no answer yet.
            </p>
          ),
      )}
      <h2>Events</h2>
      <p class="shared">
        {shared === comparison.first.events && shared === comparison.second.events ? (
          "All events are the same."
        ) : (
          <>
            The first {count(shared)} events are the same.{" "}
            {comparison.differs_in.length ? (
              <>
                Event {shared + 1} differs in <b>{comparison.differs_in.join(", ")}</b>.
              </>
            ) : (
              "Then one of the runs ends."
            )}
          </>
        )}
      </p>
      <div class="columns">
        <Column events={loaded.first} from={shared} run={first} />
        <Column events={loaded.second} from={shared} run={second} />
      </div>
    </main>
  );
}
