/** The team: its graph with heat by use, and what `baton check` found. */
import { useEffect, useState } from "preact/hooks";
import { api } from "../api/requests";
import { type UsageRow } from "../api/schemas";
import { Chip, Empty } from "../elements";
import { count, money } from "../formats";
import { agentOf, startsHolder } from "../log/events";
import { attempt } from "../state/problems";
import { log } from "../state/shown-run";
import { team } from "../state/team";
import { Graph } from "./graph";

const MEASURES: [string, (row: UsageRow) => number, (value: number) => string][] = [
  ["count", (row) => row.count, count],
  ["tokens", (row) => (row.usage.input_tokens ?? 0) + (row.usage.output_tokens ?? 0), count],
  ["cost", (row) => row.usage.cost ?? 0, money],
  ["failures", (row) => row.failures, count],
];

export function TeamPage() {
  const [measure, setMeasure] = useState("count");
  const [days, setDays] = useState(7);
  const [rows, setRows] = useState<{ agent: UsageRow[]; edge: UsageRow[] }>({
    agent: [],
    edge: [],
  });
  useEffect(
    () =>
      void attempt(async () => {
        const since = days ? Math.round(Date.now() / 1000 - days * 86400) : 0;
        const [agent, edge] = await Promise.all([
          api.usage("agent", since),
          api.usage("edge", since),
        ]);
        setRows({ agent: agent.rows, edge: edge.rows });
      }),
    [days],
  );
  const [, value, show] = MEASURES.find(([name]) => name === measure)!;
  const heat = new Map([...rows.agent, ...rows.edge].map((row) => [row.name, value(row)]));
  const noteOf = (row: UsageRow, counted: string): [string, string] => {
    const unit = measure === "count" ? `${counted}s` : measure;
    const many = value(row);
    return [
      row.name,
      `${show(many)} ${many === 1 && measure !== "cost" ? unit.slice(0, -1) : unit}`,
    ];
  };
  const note = new Map([
    ...rows.agent.map((row) => noteOf(row, "call")),
    ...rows.edge.map((row) => noteOf(row, "transfer")),
  ]);
  const last = log.value.findLast(startsHolder);
  return (
    <main class="page">
      <div class="page-head">
        <h1>Team</h1>
        <label>
          Heat{" "}
          <select value={measure} onChange={(event) => setMeasure(event.currentTarget.value)}>
            {MEASURES.map(([name]) => (
              <option>{name}</option>
            ))}
          </select>
        </label>
        <label>
          Over{" "}
          <select value={days} onChange={(event) => setDays(Number(event.currentTarget.value))}>
            <option value="1">a day</option>
            <option value="7">a week</option>
            <option value="30">a month</option>
            <option value="0">all time</option>
          </select>
        </label>
      </div>
      <div class="stage">
        <Graph heat={heat} note={note} active={last ? agentOf(last) : ""} />
      </div>
      <h2>Findings of baton check</h2>
      {team.value.findings.length ? (
        <ul class="findings">
          {team.value.findings.map((finding) => (
            <li>
              <b>{finding.kind}</b> {finding.text}
            </li>
          ))}
        </ul>
      ) : (
        <Empty>None.</Empty>
      )}
      <h2>Agents</h2>
      <table class="numbers">
        <thead>
          <tr>
            <th>Agent</th>
            <th>Description</th>
            <th>Tools</th>
            <th>Can hand over to</th>
          </tr>
        </thead>
        <tbody>
          {team.value.agents.map((agent) => (
            <tr>
              <td>
                <Chip agent={agent.name} />
              </td>
              <td>{agent.description}</td>
              <td>
                {agent.tools.map((tool) => (
                  <code>{tool} </code>
                ))}
              </td>
              <td>{[...new Set((agent.edges ?? []).map((edge) => edge.target))].join(", ")}</td>
            </tr>
          ))}
        </tbody>
      </table>
    </main>
  );
}
