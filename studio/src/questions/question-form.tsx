/** A question with a form that is made of the JSON schema of its answer. */
import { useState } from "preact/hooks";
import { Chip, Problem } from "../elements";
import { question } from "../log/descriptions";
import { agentOf } from "../log/events";
import { Field } from "../schema/field";
import { fieldValue, problemsOf, resolve, type Schema } from "../schema/schema";
import { Status } from "../status";
import { pressed, type QuestionProps } from "./question-props";

/** The name of the only field of a question whose answer is not an object. */
const WHOLE = "Answer";

export function QuestionForm(props: QuestionProps) {
  const { event, isOne, isBusy, ready, problem, answer, retract } = props;
  const root = (event.schema ?? {}) as Schema;
  const schema = resolve(root, root);
  const properties = Object.entries(schema.properties ?? {});
  const isObject = properties.length > 0;
  const fields: [string, Schema][] = isObject
    ? properties.map(([name, each]) => [name, resolve(each, root)])
    : [[WHOLE, schema.type || schema.enum ? schema : { type: "string" }]];
  const [values, setValues] = useState<Record<string, string>>({});
  const [wrong, setWrong] = useState<Record<string, string>>({});
  const refused = problemsOf(
    problem,
    properties.map(([name]) => name),
  );
  const submit = (submitted: SubmitEvent): void => {
    submitted.preventDefault();
    const made: Record<string, unknown> = {};
    const failed: Record<string, string> = {};
    for (const [name, each] of fields) {
      if (isObject && values[name] === undefined) continue;
      try {
        made[name] = isObject
          ? fieldValue(values[name]!, each)
          : wholeAnswer(values[name] ?? "", schema);
      } catch (error) {
        failed[name] = (error as Error).message;
      }
    }
    setWrong(failed);
    if (!Object.keys(failed).length) answer(isObject ? made : made[WHOLE]);
  };
  return (
    <form class="question" onInput={retract} onSubmit={submit}>
      <p>
        <Status of="suspended" />
        <Chip agent={agentOf(event)} />
        <span>asks: {question(event)}</span>
      </p>
      <div class={isObject ? "fields" : ""}>
        {fields.map(([name, each]) => (
          <Field
            name={name}
            schema={each}
            value={values[name] ?? ""}
            problem={wrong[name] ?? refused[isObject ? name : ""]}
            set={(text) => setValues({ ...values, [name]: text })}
          />
        ))}
      </div>
      {isObject && <Problem text={refused[""]} />}
      <div class="actions">
        <button
          class={isOne ? "primary" : ""}
          disabled={isBusy}
          {...pressed(isOne, ready !== undefined)}
        >
          Answer
        </button>
      </div>
    </form>
  );
}

/** The answer to a question without fields. Without a schema, JSON is read as such and everything else as text. */
function wholeAnswer(text: string, schema: Schema): unknown {
  if (schema.enum) return typeof schema.enum[0] === "string" ? text : JSON.parse(text);
  if (schema.type) return fieldValue(text, schema);
  try {
    return JSON.parse(text) as unknown;
  } catch {
    return text;
  }
}
