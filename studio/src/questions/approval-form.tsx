/** A tool call that waits for an approval; its arguments can be changed. */
import { useState } from "preact/hooks";
import { Chip, Problem } from "../elements";
import { agentOf, callText } from "../log/events";
import { JsonField, parseJson } from "../schema/json-field";
import { Status } from "../status";
import { pressed, type QuestionProps } from "./question-props";

export function ApprovalForm(props: QuestionProps) {
  const { event, isOne, isBusy, ready, problem, answer, retract } = props;
  const [reason, setReason] = useState("");
  const [args, setArgs] = useState<string | null>(null);
  const [wrong, setWrong] = useState("");
  const isRefused =
    ready === false || (ready as { approved?: boolean } | undefined)?.approved === false;
  const allow = (submitted: SubmitEvent): void => {
    submitted.preventDefault();
    setWrong("");
    try {
      answer(args === null ? true : { approved: true, arguments: parseJson(args) });
    } catch (error) {
      setWrong((error as Error).message);
    }
  };
  const toggleArguments = (): void => {
    retract();
    setWrong("");
    const present = JSON.parse(event.tool_call!.arguments ?? "{}") as unknown;
    setArgs(args === null ? JSON.stringify(present, null, 2) : null);
  };
  return (
    <form class="question" onInput={retract} onSubmit={allow}>
      <p>
        <Status of="suspended" />
        <Chip agent={agentOf(event)} />
        <span>
          asks: allow <code>{callText(event.tool_call!)}</code>?
        </span>
      </p>
      {args !== null && (
        <JsonField label="Arguments (JSON)" rows={3} value={args} problem={wrong} set={setArgs} />
      )}
      <Problem text={problem} />
      <div class="actions">
        <input
          aria-label="Reason for a refusal"
          placeholder="Reason, if you refuse"
          value={reason}
          onInput={(input) => setReason(input.currentTarget.value)}
        />
        <button type="button" onClick={toggleArguments}>
          {args === null ? "Edit" : "Keep"} arguments
        </button>
        <button
          type="button"
          disabled={isBusy}
          {...pressed(isOne, isRefused)}
          onClick={() => answer(reason ? { approved: false, reason } : false)}
        >
          Refuse
        </button>
        <button
          class={isOne ? "primary" : ""}
          disabled={isBusy}
          {...pressed(isOne, ready !== undefined && !isRefused)}
        >
          Allow
        </button>
      </div>
    </form>
  );
}
