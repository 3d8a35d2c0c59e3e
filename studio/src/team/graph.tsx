/** The team as a graph. */
import { useMemo } from "preact/hooks";
import type { Team } from "../api/schemas";
import { team, tone } from "../state/team";
import { placeTeam, type Box, type PlacedEdge } from "./placement";

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
  const agents = team.value.agents;
  const { nodes, edges, box } = useMemo(
    () => placeTeam(team.value, isCompact),
    [team.value, isCompact],
  );
  if (!agents.length) return null;
  const hottest = Math.max(1e-9, ...heat.values());
  const warmth = (name: string): number | null =>
    heat.size ? (heat.get(name) ?? 0) / hottest : null;
  return (
    <svg
      class={`graph ${isCompact ? "compact" : ""}`}
      viewBox={`${box.x} ${box.y} ${box.width} ${box.height}`}
      width={box.width}
      height={box.height}
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
      {edges.map((edge) => (
        <EdgeMark
          edge={edge}
          warmth={warmth(edge.name)}
          isUsed={!!used.get(edge.name) || !!heat.get(edge.name)}
          note={note.get(edge.name) ?? used.get(edge.name)}
        />
      ))}
      {agents.map((agent) => (
        <AgentMark
          agent={agent}
          node={nodes.get(agent.name)!}
          warmth={warmth(agent.name)}
          isActive={agent.name === active}
          second={isCompact ? "" : (note.get(agent.name) ?? toolCount(agent))}
        />
      ))}
    </svg>
  );
}

interface EdgeMarkProps {
  edge: PlacedEdge;
  warmth: number | null;
  isUsed: boolean;
  note: string | number | undefined;
}

const EdgeMark = ({ edge, warmth, isUsed, note }: EdgeMarkProps) => (
  <path
    class={`edge ${edge.kind} ${isUsed ? "used" : ""}`}
    style={warmth === null ? {} : { strokeWidth: `${1.2 + warmth * 5}px` }}
    marker-end="url(#arrow)"
    d={edge.path}
  >
    <title>{[`${edge.name} (${edge.kind})`, note].filter(Boolean).join(": ")}</title>
  </path>
);

type Agent = Team["agents"][number];
const toolCount = ({ tools }: Agent): string =>
  tools.length ? `${tools.length} ${tools.length === 1 ? "tool" : "tools"}` : "";

interface AgentMarkProps {
  agent: Agent;
  node: Box;
  warmth: number | null;
  isActive: boolean;
  second: string;
}

function AgentMark({ agent, node, warmth, isActive, second }: AgentMarkProps) {
  const tools = agent.tools.length ? `\ntools: ${agent.tools.join(", ")}` : "";
  return (
    <g class={`node ${tone(agent.name)} ${isActive ? "active" : ""}`}>
      <title>{agent.description + tools}</title>
      <rect
        x={node.x - node.width / 2}
        y={node.y - node.height / 2}
        width={node.width}
        height={node.height}
        rx="8"
        style={warmth === null ? {} : { fillOpacity: `${0.08 + 0.4 * warmth}` }}
      />
      <text x={node.x} y={node.y + (second ? -3 : 4)}>
        {agent.name}
      </text>
      {second && (
        <text class="second" x={node.x} y={node.y + 13}>
          {second}
        </text>
      )}
    </g>
  );
}
