/** A field of a form that is made of a JSON schema. */
import { useId } from "preact/hooks";
import type { Schema } from "./schema";

interface FieldProps {
  name: string;
  schema: Schema;
  value: string;
  problem: string | undefined;
  set: (text: string) => void;
}

export function Field(props: FieldProps) {
  const id = useId();
  const problem = props.problem;
  return (
    <div class="schema-field">
      <Input {...props} id={problem ? id : undefined} />
      {problem && (
        <p class="wrong" role="alert" id={id}>
          {problem}
        </p>
      )}
    </div>
  );
}

function Input({ name, schema, value, problem, set, id }: FieldProps & { id: string | undefined }) {
  const type = Array.isArray(schema.type) ? schema.type[0] : schema.type;
  const label = (
    <>
      {schema.title ?? name}
      {schema.description && <small> {schema.description}</small>}
    </>
  );
  const state = { "aria-invalid": !!problem, "aria-describedby": id };
  if (schema.enum)
    return (
      <label>
        {label}
        <select value={value} {...state} onChange={(event) => set(event.currentTarget.value)}>
          <option value="" />
          {schema.enum.map((each) => (
            <option value={typeof each === "string" ? each : JSON.stringify(each)}>
              {String(each)}
            </option>
          ))}
        </select>
      </label>
    );
  if (type === "boolean")
    return (
      <label class="check">
        <input
          type="checkbox"
          checked={value === "true"}
          {...state}
          onChange={(event) => set(String(event.currentTarget.checked))}
        />
        {label}
      </label>
    );
  if (type === "integer" || type === "number")
    return (
      <label>
        {label}
        <input
          type="number"
          step="any"
          value={value}
          {...state}
          onInput={(event) => set(event.currentTarget.value)}
        />
      </label>
    );
  return (
    <label>
      {label}
      <textarea
        rows={type === "string" ? 1 : 3}
        value={value}
        {...state}
        onInput={(event) => set(event.currentTarget.value)}
      />
    </label>
  );
}
