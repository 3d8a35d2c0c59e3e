/** One open question: an approval with editable arguments, or a form. */
import { useState } from "preact/hooks";
import { Chip } from "../elements";
import { question } from "../log/descriptions";
import { type Event, agentOf, callText } from "../log/events";
import { Field } from "./field";
import { type Schema, fieldValue, resolve } from "./schema";
import { Status } from "../status";

interface FormProps {
  event: Event;
  isOne: boolean;
  isBusy: boolean;
  ready: unknown;
  answer: (make: () => unknown) => void;
  retract: () => void;
}

/** With several questions, the buttons only keep an answer until all are sent; a change of the form retracts it. */
export function QuestionForm({ event, isOne, isBusy, ready, answer, retract }: FormProps) {
  const root = (event.schema ?? {}) as Schema;
  const schema = resolve(root, root);
  const payload = event.payload as { kind?: string } | null;
  const isApproval = !!event.tool_call && payload?.kind === "approval";
  const [values, setValues] = useState<Record<string, string>>({});
  const [text, setText] = useState("");
  const [reason, setReason] = useState("");
  const [args, setArgs] = useState<string | null>(null);
  const isRefused =
    ready === false || (ready as { approved?: boolean } | undefined)?.approved === false;
  const pressed = (is: boolean): { "aria-pressed"?: boolean } =>
    isOne ? {} : { "aria-pressed": is };
  const set =
    (name: string) =>
    (value: string): void =>
      setValues({ ...values, [name]: value });
  if (isApproval) {
    return (
      <form
        class="question"
        onInput={retract}
        onSubmit={(submitted) => {
          submitted.preventDefault();
          answer(() =>
            args === null ? true : { approved: true, arguments: JSON.parse(args) as unknown },
          );
        }}
      >
        <p>
          <Status of="suspended" />
          <Chip agent={agentOf(event)} />
          <span>
            asks: allow <code>{callText(event.tool_call!)}</code>?
          </span>
        </p>
        {args !== null && (
          <label>
            Arguments (JSON)
            <textarea
              class="mono"
              rows={3}
              value={args}
              onInput={(input) => setArgs(input.currentTarget.value)}
            />
          </label>
        )}
        <div class="actions">
          <input
            aria-label="Reason for a refusal"
            placeholder="Reason, if you refuse"
            value={reason}
            onInput={(input) => setReason(input.currentTarget.value)}
          />
          <button
            type="button"
            onClick={() => {
              retract();
              setArgs(
                args === null
                  ? JSON.stringify(JSON.parse(event.tool_call!.arguments ?? "{}"), null, 2)
                  : null,
              );
            }}
          >
            {args === null ? "Edit" : "Keep"} arguments
          </button>
          <button
            type="button"
            disabled={isBusy}
            {...pressed(isRefused)}
            onClick={() => answer(() => (reason ? { approved: false, reason } : false))}
          >
            Refuse
          </button>
          <button
            class={isOne ? "primary" : ""}
            disabled={isBusy}
            {...pressed(ready !== undefined && !isRefused)}
          >
            Allow
          </button>
        </div>
      </form>
    );
  }
  const fields = Object.entries(schema.properties ?? {});
  const make = (): unknown => {
    if (fields.length)
      return Object.fromEntries(
        fields
          .filter(([name]) => values[name] !== undefined)
          .map(([name, each]) => [name, fieldValue(values[name]!, resolve(each, root))]),
      );
    if (schema.type || schema.enum)
      return fieldValue(
        text,
        schema.enum ? { type: typeof schema.enum[0] === "string" ? "string" : undefined } : schema,
      );
    try {
      return JSON.parse(text) as unknown;
    } catch {
      return text;
    }
  };
  return (
    <form
      class="question"
      onInput={retract}
      onSubmit={(submitted) => {
        submitted.preventDefault();
        answer(make);
      }}
    >
      <p>
        <Status of="suspended" />
        <Chip agent={agentOf(event)} />
        <span>asks: {question(event)}</span>
      </p>
      {fields.length ? (
        <div class="fields">
          {fields.map(([name, each]) => (
            <Field
              name={name}
              schema={resolve(each, root)}
              value={values[name] ?? ""}
              set={set(name)}
            />
          ))}
        </div>
      ) : (
        <Field
          name="Answer"
          schema={schema.type || schema.enum ? schema : { type: "string" }}
          value={text}
          set={setText}
        />
      )}
      <div class="actions">
        <button class={isOne ? "primary" : ""} disabled={isBusy} {...pressed(ready !== undefined)}>
          Answer
        </button>
      </div>
    </form>
  );
}
