/** The response of a model in a fork: its text and its tool calls. */
import type { RequestView } from "../api/schemas";
import { JsonField } from "../schema/json-field";
import { ToolArguments } from "../schema/tool-arguments";
import type { Draft, DraftCall, Problems } from "./draft";

interface ResponseFieldsProps {
  agent: string;
  draft: Draft;
  set: (draft: Draft) => void;
  problems: Problems;
  /** The tools that the model was offered, as the run has recorded them. */
  tools: RequestView["tools"];
}

export function ResponseFields({ agent, draft, set, problems, tools }: ResponseFieldsProps) {
  const names = [...new Set([...tools, ...draft.calls].map(({ name }) => name))];
  const setCall = (index: number, part: Partial<DraftCall>): void => {
    const calls = draft.calls.map((call, at) => (at === index ? { ...call, ...part } : call));
    set({ ...draft, calls });
  };
  const remove = (index: number): void =>
    set({ ...draft, calls: draft.calls.filter((_, at) => at !== index) });
  return (
    <>
      <label>
        Text of {agent}
        <textarea
          rows={3}
          value={draft.text}
          onInput={(input) => set({ ...draft, text: input.currentTarget.value })}
        />
      </label>
      {draft.calls.map((call, index) => {
        const tool = tools.find(({ name }) => name === call.name);
        return (
          <fieldset>
            <legend>Tool call {index + 1}</legend>
            <label>
              Tool
              <select
                value={call.name}
                onChange={(input) => setCall(index, { name: input.currentTarget.value })}
              >
                {names.map((name) => (
                  <option>{name}</option>
                ))}
              </select>
            </label>
            {tool && <ToolArguments tool={tool} />}
            <JsonField
              label="Arguments (JSON)"
              rows={2}
              value={call.arguments}
              problem={problems[`call ${index}`]}
              set={(text) => setCall(index, { arguments: text })}
            />
            <button type="button" onClick={() => remove(index)}>
              Remove the call
            </button>
          </fieldset>
        );
      })}
      {names.length > 0 && (
        <button
          type="button"
          onClick={() =>
            set({ ...draft, calls: [...draft.calls, { name: names[0]!, arguments: "{}" }] })
          }
        >
          Add a tool call
        </button>
      )}
    </>
  );
}
