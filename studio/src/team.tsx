/** The team as a graph, with the active agent, heat by use, and what `baton check` found. */
import dagre from "@dagrejs/dagre";
import { useEffect, useMemo, useState } from "preact/hooks";
import { api } from "./api";
import { textWidth } from "./labels";
import { agentOf, count, money, type Event, type UsageRow } from "./model";
import { Chip, Empty } from "./parts";
import { attempt, chosen, log, team, tone } from "./state";

interface Point {
  x: number;
  y: number;
}
function curve(points: Point[]): string {
  let path = `M${points[0]!.x} ${points[0]!.y}`;
  for (let index = 1; index < points.length - 1; index++) {
    const at = points[index]!;
    const next = points[index + 1]!;
    const end =
      index === points.length - 2 ? next : { x: (at.x + next.x) / 2, y: (at.y + next.y) / 2 };
    path += `Q${at.x} ${at.y} ${end.x} ${end.y}`;
  }
  return path;
}

function layout(isCompact: boolean) {
  const graph = new dagre.graphlib.Graph();
  graph.setGraph({
    rankdir: "LR",
    nodesep: isCompact ? 7 : 30,
    ranksep: isCompact ? 46 : 90,
    edgesep: isCompact ? 6 : 14,
    marginx: 6,
    marginy: isCompact ? 4 : 12,
  });
  graph.setDefaultEdgeLabel(() => ({}));
  for (const agent of team.value.agents)
    graph.setNode(agent.name, {
      width: (isCompact ? 22 : 30) + textWidth(agent.name, 12),
      height: isCompact ? 23 : 46,
    });
  for (const agent of team.value.agents) {
    for (const edge of agent.edges ?? [])
      if (edge.kind !== "parent") graph.setEdge(edge.source, edge.target, { kind: edge.kind });
    for (const part of agent.parts ?? []) graph.setEdge(part.owner, part.agent, { kind: "inside" });
  }
  dagre.layout(graph);
  return graph;
}

interface GraphProps {
  isCompact?: boolean;
  active?: string;
  used?: Map<string, number>;
  heat?: Map<string, number>;
  note?: Map<string, string>;
}
export function Graph({
  isCompact = false,
  active = "",
  used = new Map(),
  heat = new Map(),
  note = new Map(),
}: GraphProps) {
  const graph = useMemo(() => layout(isCompact), [team.value, isCompact]);
  if (!team.value.agents.length) return null;
  const size = graph.graph() as { width: number; height: number };
  const hottest = Math.max(1e-9, ...heat.values());
  return (
    <svg
      class={`graph ${isCompact ? "compact" : ""}`}
      viewBox={`0 0 ${size.width} ${size.height}`}
      width={size.width}
      height={size.height}
      role="img"
      aria-label={active ? `The team; ${active} is active` : "The team"}
    >
      <defs>
        <marker
          id="arrow"
          viewBox="0 0 8 8"
          refX="6.6"
          refY="4"
          markerUnits="userSpaceOnUse"
          markerWidth="9"
          markerHeight="9"
          orient="auto"
        >
          <path d="M1 1 6.6 4 1 7" class="tip" />
        </marker>
      </defs>
      {graph.edges().map((edge) => {
        const { points, kind } = graph.edge(edge) as { points: Point[]; kind: string };
        const name = `${edge.v} → ${edge.w}`;
        const weight = (heat.get(name) ?? 0) / hottest;
        return (
          <path
            class={`edge ${kind} ${used.get(name) || heat.get(name) ? "used" : ""}`}
            style={heat.size ? { strokeWidth: `${1.2 + weight * 5}px` } : {}}
            marker-end="url(#arrow)"
            d={curve(points)}
          >
            <title>
              {[`${name} (${kind})`, note.get(name) ?? used.get(name)].filter(Boolean).join(": ")}
            </title>
          </path>
        );
      })}
      {team.value.agents.map((agent) => {
        const node = graph.node(agent.name) as {
          x: number;
          y: number;
          width: number;
          height: number;
        };
        const second =
          note.get(agent.name) ??
          (agent.tools.length
            ? `${agent.tools.length} ${agent.tools.length === 1 ? "tool" : "tools"}`
            : "");
        return (
          <g class={`node ${tone(agent.name)} ${agent.name === active ? "active" : ""}`}>
            <title>{`${agent.description}${agent.tools.length ? `\ntools: ${agent.tools.join(", ")}` : ""}`}</title>
            <rect
              x={node.x - node.width / 2}
              y={node.y - node.height / 2}
              width={node.width}
              height={node.height}
              rx="8"
              style={
                heat.size
                  ? { fillOpacity: `${0.08 + 0.4 * ((heat.get(agent.name) ?? 0) / hottest)}` }
                  : {}
              }
            />
            <text x={node.x} y={node.y + (isCompact || !second ? 4 : -3)}>
              {agent.name}
            </text>
            {!isCompact && second && (
              <text class="second" x={node.x} y={node.y + 13}>
                {second}
              </text>
            )}
          </g>
        );
      })}
    </svg>
  );
}

/** The graph beside a log: the agent that was active at the chosen event, and the edges followed until then. */
export function RunGraph() {
  const [active, used] = useMemo(() => {
    const edges = new Map<string, number>();
    let last = "";
    for (const event of log.value.slice(0, chosen.value + 1) as Event[]) {
      if (event.type === "ControlTransferred") {
        const name = `${event.source} → ${event.target}`;
        edges.set(name, (edges.get(name) ?? 0) + 1);
      }
      if (event.type === "AgentStarted") last = agentOf(event);
    }
    return [last, edges] as const;
  }, [log.value, chosen.value]);
  // The run may be of another team than the one that Studio was started with.
  const first = log.value.find((event) => event.type === "AgentStarted");
  const isOther = !!first && !team.value.agents.some((agent) => agent.name === agentOf(first));
  return isOther ? null : <Graph isCompact active={active} used={used} />;
}

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
  const last = log.value.findLast((event) => event.type === "AgentStarted");
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
