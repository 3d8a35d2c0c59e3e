/** What was said in a run, as its user heard it; what nested agents said is inside the call that ran them. Pure. */
import { question } from "../log/descriptions";
import {
  agentOf,
  callsOf,
  callText,
  messageOf,
  textOf,
  type Event,
  type ToolCall,
} from "../log/events";

/** Words of the user, whose name is empty, or of an agent. */
export interface Said {
  kind: "said" | "asked";
  who: string;
  text: string;
  index: number;
}
export interface Moved {
  kind: "moved";
  from: string;
  to: string;
  index: number;
}
/** What agents said that ran in a tool call of another agent, or inside it. */
export interface Inside {
  kind: "inside";
  who: string;
  /** The tool call that ran them; empty for the agents of a workflow. */
  call: string;
  agents: string[];
  lines: Line[];
  isFinished: boolean;
  index: number;
}
export type Line = Said | Moved | Inside;

export function conversation(events: Event[]): Line[] {
  const building = new Building(events);
  events.forEach((event, index) => building.add(event, index));
  return building.top;
}

/** The line of an event, or the last one before it; outside of other lines rather than inside. */
export function lineAt(lines: Line[], index: number): Exclude<Line, Inside> | undefined {
  let found: Exclude<Line, Inside> | undefined;
  for (const line of lines) {
    const here = line.kind === "inside" ? lineAt(line.lines, index) : line;
    if (here && here.index <= index && here.index >= (found?.index ?? 0)) found = here;
  }
  return found;
}

class Building {
  readonly top: Line[] = [];
  private readonly agents: Map<string, string>;
  private readonly calls = new Map<string, ToolCall>();
  private readonly groups = new Map<string, Inside>();
  /** The activations of parallel branches: their answers follow in the order in which they were declared. */
  private readonly branches = new Set<string>();
  /** What was said last inside an activation, by the activation. */
  private readonly answers = new Map<string, { id: string; text: string; index: number }>();

  constructor(events: Event[]) {
    const started = events.filter((event) => event.type === "AgentStarted");
    this.agents = new Map(started.map((event) => [event.origin[0], agentOf(event)]));
  }

  add(event: Event, index: number): void {
    const [id] = event.origin;
    switch (event.type) {
      case "RunStarted":
        for (const each of event.input ?? [])
          this.say(this.top, each.role === "user" ? "" : "earlier", textOf(each.content), index);
        break;
      case "UserMessageAdded":
        this.say(this.top, "", textOf(messageOf(event)?.content), index);
        break;
      case "AgentStarted":
        if (event.opens?.kind === "branch") this.branches.add(id);
        break;
      case "AgentResponded":
        this.respond(event, index);
        break;
      case "ControlTransferred":
        this.linesOf(id, index).push({
          kind: "moved",
          from: event.source ?? "",
          to: event.target ?? "",
          index,
        });
        break;
      case "InterruptRaised":
        // A question reaches the user from any depth; the agent that holds control asks it.
        this.top.push({ kind: "asked", who: this.holder(id), text: question(event), index });
        break;
      case "InterruptAnswered":
        this.say(this.top, "", answerText(event.answer), index);
        break;
      case "ToolReturned":
        this.finish(event.key);
        break;
      case "AgentFinished":
        this.end(id);
        break;
    }
  }

  private respond(event: Event, index: number): void {
    const [id] = event.origin;
    callsOf(event).forEach((call, position) => this.calls.set(`${event.key}.${position}`, call));
    const text = textOf(messageOf(event)?.content);
    if (!text) return;
    this.say(this.linesOf(id, index), agentOf(event), text, index);
    if (!callsOf(event).length) this.keepAnswer(id, text, index);
  }

  private say(lines: Line[], who: string, text: string, index: number): void {
    lines.push({ kind: "said", who, text, index });
  }

  private holder(id: string): string {
    return this.agents.get(id.split("/")[0]!) ?? "";
  }

  /** The activation around another one, and what ran it there: a tool call, or a place of a workflow. */
  private around(id: string): { outer: string; call: string } | null {
    for (let cut = id.lastIndexOf("/"); cut > 0; cut = id.lastIndexOf("/", cut - 1)) {
      const outer = id.slice(0, cut);
      if (!this.agents.has(outer)) continue;
      const call = /^[im]\d+\.\d+(?=\/)/.exec(id.slice(cut + 1))?.[0] ?? "";
      return { outer, call: call && `${outer}/${call}` };
    }
    return null;
  }

  /** The lines to which words of an activation belong. */
  private linesOf(id: string, index: number): Line[] {
    const around = this.around(id);
    if (!around) return this.top;
    const key = around.call || around.outer;
    let group = this.groups.get(key);
    if (!group) {
      const call = this.calls.get(around.call);
      group = {
        kind: "inside",
        who: this.agents.get(around.outer)!,
        call: call ? callText(call) : "",
        agents: [],
        lines: [],
        isFinished: false,
        index,
      };
      this.groups.set(key, group);
      this.linesOf(around.outer, index).push(group);
    }
    const agent = this.agents.get(id);
    if (agent && !group.agents.includes(agent)) group.agents.push(agent);
    return group.lines;
  }

  /** The answer of a workflow is the last one inside it. */
  private keepAnswer(id: string, text: string, index: number): void {
    this.answers.delete(id);
    const around = this.around(id);
    if (!around || around.call) return;
    const known = this.answers.get(around.outer);
    const isBefore = known && this.branches.has(id) && byPlace(id, known.id) < 0;
    if (!isBefore) this.answers.set(around.outer, { id, text, index });
  }

  private finish(key: string): void {
    const group = this.groups.get(key);
    if (group) group.isFinished = true;
  }

  private end(id: string): void {
    this.finish(id);
    const answer = this.answers.get(id);
    if (!answer) return;
    this.say(this.linesOf(id, answer.index), this.agents.get(id)!, answer.text, answer.index);
    this.keepAnswer(id, answer.text, answer.index);
  }
}

const byPlace = (a: string, b: string): number =>
  a.localeCompare(b, "en", { numeric: true, sensitivity: "base" });

/** The answer to a question as words. */
function answerText(answer: unknown): string {
  if (answer === null || typeof answer !== "object") return String(answer);
  const { approved, reason, arguments: changed } = answer as Record<string, unknown>;
  if (approved === true) return changed ? `allowed with ${JSON.stringify(changed)}` : "allowed";
  if (approved === false) return reason ? `refused: ${String(reason)}` : "refused";
  return JSON.stringify(answer);
}
