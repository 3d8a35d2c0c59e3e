/** The question whether a call happened that must happen once, with the three answers to it. */
import { useState } from "preact/hooks";
import { Chip, Problem } from "../elements";
import { agentOf, callText } from "../log/events";
import { Status } from "../status";
import { outcomeOf, startOf, type Choice, type Outcome } from "../log/outcome";
import { pressed, type QuestionProps } from "./question-props";

export function OutcomeForm(props: QuestionProps) {
  const { event, isOne, isBusy, ready, problem, answer, retract } = props;
  const question = event.payload as Outcome;
  const [draft, setDraft] = useState(() => startOf(question));
  const inFork = question.forked_from !== undefined;
  const choices: [Choice, string][] = [
    ["result", inFork ? "Do not call it: take this result" : "It happened, with this result"],
    ["error", inFork ? "Do not call it: take this error" : "It failed, with this error"],
    ["run_again", inFork ? "Call it: the fork acts" : "It did not happen: call it now"],
  ];
  const call = { name: question.tool, arguments: JSON.stringify(question.arguments), id: "" };
  const submit = (submitted: SubmitEvent): void => {
    submitted.preventDefault();
    answer(outcomeOf(draft));
  };
  return (
    <form class="question" onInput={retract} onSubmit={submit}>
      <p>
        <Status of="suspended" />
        <Chip agent={agentOf(event)} />
        <span>
          asks: {inFork ? "shall this fork call" : "has this call happened?"}{" "}
          <code>{callText(call)}</code>
          {inFork && "?"}
        </span>
      </p>
      <fieldset class="choices" aria-label="Outcome">
        {choices.map(([choice, label]) => (
          <label class="check" key={choice}>
            <input
              type="radio"
              name={event.key}
              checked={draft.choice === choice}
              onChange={() => setDraft({ ...draft, choice })}
            />
            {label}
          </label>
        ))}
      </fieldset>
      {draft.choice !== "run_again" && (
        <label>
          {draft.choice === "result" ? "Result" : "Error"}
          <textarea
            rows={2}
            value={draft.text}
            onInput={(input) => setDraft({ ...draft, text: input.currentTarget.value })}
          />
        </label>
      )}
      <Problem text={problem} />
      <div class="actions">
        <button
          class={isOne ? "primary" : ""}
          disabled={isBusy || draft.choice === ""}
          {...pressed(isOne, ready !== undefined)}
        >
          Answer
        </button>
      </div>
    </form>
  );
}
