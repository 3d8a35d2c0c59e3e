/** Where the agents of a team and the edges between them are drawn. Pure. */
import dagre from "@dagrejs/dagre";
import type { Team } from "../api/schemas";
import { textWidth } from "../text-width";

interface Point {
  x: number;
  y: number;
}
export interface Box extends Point {
  width: number;
  height: number;
}
export interface PlacedEdge {
  name: string;
  kind: string;
  path: string;
  /** Points that the path stays between. */
  points: Point[];
}
export interface PlacedTeam {
  /** The agents, by name; `x` and `y` are their middle. */
  nodes: Map<string, Box>;
  edges: PlacedEdge[];
  /** What contains all of it. */
  box: Box;
}

const MARGIN = 6;
/** The height of the arc of an edge from an agent to itself. */
const ARC = 20;

export function placeTeam({ agents }: Team, isCompact: boolean): PlacedTeam {
  const graph = new dagre.graphlib.Graph();
  graph.setGraph({
    rankdir: "LR",
    nodesep: isCompact ? 7 : 30,
    ranksep: isCompact ? 46 : 90,
    edgesep: isCompact ? 6 : 14,
  });
  graph.setDefaultEdgeLabel(() => ({}));
  for (const { name } of agents)
    graph.setNode(name, {
      width: (isCompact ? 22 : 30) + textWidth(name, 12),
      height: isCompact ? 23 : 46,
    });
  const loops: [agent: string, kind: string][] = [];
  const connect = (from: string, to: string, kind: string): void => {
    if (from === to) loops.push([from, kind]);
    else graph.setEdge(from, to, { kind });
  };
  for (const agent of agents) {
    for (const edge of agent.edges ?? [])
      if (edge.kind !== "parent") connect(edge.source, edge.target, edge.kind);
    for (const part of agent.parts ?? []) connect(part.owner, part.agent, "inside");
  }
  dagre.layout(graph);
  const nodes = new Map(agents.map(({ name }) => [name, graph.node(name) as Box]));
  const edges = graph.edges().map((edge): PlacedEdge => {
    const { points, kind } = graph.edge(edge) as { points: Point[]; kind: string };
    return { name: `${edge.v} → ${edge.w}`, kind, path: curve(points), points };
  });
  for (const [agent, kind] of loops)
    edges.push({ name: `${agent} → ${agent}`, kind, ...arcAbove(nodes.get(agent)!) });
  return { nodes, edges, box: boxAround([...nodes.values()], edges) };
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

function arcAbove({ x, y, height }: Box): { path: string; points: Point[] } {
  const top = y - height / 2;
  const path = `M${x - 9} ${top}C${x - 14} ${top - ARC} ${x + 14} ${top - ARC} ${x + 9} ${top}`;
  return { path, points: [{ x, y: top - ARC }] };
}

/** The layout's own size leaves out edges that run around the agents. */
function boxAround(nodes: Box[], edges: PlacedEdge[]): Box {
  const xs = nodes.flatMap((node) => [node.x - node.width / 2, node.x + node.width / 2]);
  const ys = nodes.flatMap((node) => [node.y - node.height / 2, node.y + node.height / 2]);
  for (const { points } of edges) {
    xs.push(...points.map((point) => point.x));
    ys.push(...points.map((point) => point.y));
  }
  const [x, y] = [Math.min(...xs) - MARGIN, Math.min(...ys) - MARGIN];
  return { x, y, width: Math.max(...xs) + MARGIN - x, height: Math.max(...ys) + MARGIN - y };
}
