/** A fork at the chosen event: change what was said, returned or answered, instructions or model. */
import { useEffect, useState } from "preact/hooks";
import { api, type Fork } from "../api/requests";
import type { RequestView } from "../api/schemas";
import { Problem } from "../elements";
import { agentOf, type Event } from "../log/events";
import { JsonField } from "../schema/json-field";
import { go, runId } from "../state/place";
import { attempt } from "../state/problems";
import { log, tab } from "../state/shown-run";
import { team } from "../state/team";
import { actingTools } from "./acting-tools";
import { draftOf, editOf, type Problems } from "./draft";
import { ResponseFields } from "./response-fields";

/** The agent whose instructions the form changes at first: the event's, or the team's first. */
const starter = (event: Event): string => agentOf(event) || team.value.root;

const textLabel = (event: Event): string => {
  if (event.type === "RunStarted") return "Words of the user";
  return event.type === "ToolReturned" ? `Result of ${event.tool_name}` : "Message";
};

interface ActingProps {
  tools: string[];
  text: string;
}

/** A line about tools that act outside when the fork is run. */
function Acting({ tools, text }: ActingProps) {
  if (!tools.length) return null;
  return (
    <p class="acting">
      {tools.map((name, position) => (
        <>
          {position > 0 && ", "}
          <code>{name}</code>
        </>
      ))}{" "}
      {text}.
    </p>
  );
}

interface ForkFormProps {
  event: Event;
  number: number;
  read: RequestView | null;
}

export function ForkForm({ event, number, read }: ForkFormProps) {
  const before = draftOf(event);
  const [draft, setDraft] = useState(before);
  const [model, setModel] = useState("");
  const [agent, setAgent] = useState(starter(event));
  const [instructions, setInstructions] = useState("");
  const [problems, setProblems] = useState<Problems>({});
  const [busy, setBusy] = useState(false);
  useEffect(() => {
    setDraft(draftOf(event));
    setAgent(starter(event));
    setInstructions("");
    setModel("");
    setProblems({});
  }, [event.key, runId.value]);

  const submit = async (submitted: SubmitEvent): Promise<void> => {
    submitted.preventDefault();
    const made = editOf(before, draft);
    setProblems(made.problems);
    if (Object.keys(made.problems).length) return;
    const body: Fork = { at: number };
    if (made.edit !== undefined) body.edit = { [event.key]: made.edit };
    if (model) body.model = model;
    if (instructions && agent) body.agent_options = { [agent]: { instructions } };
    setBusy(true);
    await attempt(
      async () => {
        const fork = await api.fork(runId.value, body);
        tab.value = "read";
        go(fork.id);
      },
      (message) => {
        // A message about the model names it.
        const field = model && message.includes(model) ? "model" : "";
        setProblems(message ? { [field]: message } : {});
      },
    );
    setBusy(false);
  };
  const agents = team.value.agents.map((each) => each.name);
  const calls = draft.kind === "response" ? draft.calls.map((call) => call.name) : undefined;
  const acting = actingTools(log.value, number, team.value, calls);
  return (
    <form class="form" onSubmit={(submitted) => void submit(submitted)}>
      <p>
        Start another run with the first {number} {number === 1 ? "event" : "events"} of this one.
        What follows is run again; this run stays as it is.
      </p>
      <Acting
        tools={acting.asking}
        text="must act once. The fork asks you before each call what it shall return, or whether to make it"
      />
      <Acting
        tools={acting.repeating}
        text="will act again if the fork calls it; a call with the same arguments has the same idempotency key"
      />
      {draft.kind === "text" && (
        <label>
          {textLabel(event)}
          <textarea
            rows={4}
            value={draft.text}
            onInput={(input) => setDraft({ ...draft, text: input.currentTarget.value })}
          />
        </label>
      )}
      {draft.kind === "json" && (
        <JsonField
          label={event.type === "InterruptAnswered" ? "Answer (JSON)" : "Result (JSON)"}
          rows={4}
          value={draft.text}
          problem={problems.json}
          set={(text) => setDraft({ ...draft, text })}
        />
      )}
      {draft.kind === "response" && (
        <ResponseFields
          agent={agentOf(event)}
          draft={draft}
          set={setDraft}
          problems={problems}
          tools={read?.tools ?? []}
        />
      )}
      <details>
        <summary>Instructions and model</summary>
        {agents.length > 0 && (
          <label>
            Agent
            <select value={agent} onChange={(input) => setAgent(input.currentTarget.value)}>
              {agents.map((name) => (
                <option>{name}</option>
              ))}
            </select>
          </label>
        )}
        <label>
          New instructions for {agent || "the agent"}
          <textarea
            rows={4}
            placeholder={agent === read?.agent ? read.instructions : "as before"}
            value={instructions}
            onInput={(input) => setInstructions(input.currentTarget.value)}
          />
        </label>
        <div>
          <label>
            Model of all agents
            <input
              placeholder="as before"
              value={model}
              aria-invalid={!!problems.model}
              onInput={(input) => setModel(input.currentTarget.value)}
            />
          </label>
          <Problem text={problems.model} />
        </div>
      </details>
      <div>
        <button class="primary" disabled={busy}>
          Fork and run
        </button>
        <Problem text={problems[""]} />
      </div>
    </form>
  );
}
