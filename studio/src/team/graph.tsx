/** The team as a graph. */
import dagre from "@dagrejs/dagre";
import { useMemo } from "preact/hooks";
import { team, tone } from "../state/team";
import { textWidth } from "../text-width";

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
