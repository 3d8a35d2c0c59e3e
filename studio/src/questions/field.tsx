/** A field of a form that is made of a JSON schema. */
import { type Schema } from "./schema";

export function Field({
  name,
  schema,
  value,
  set,
}: {
  name: string;
  schema: Schema;
  value: string;
  set: (text: string) => void;
}) {
  const type = Array.isArray(schema.type) ? schema.type[0] : schema.type;
  const label = (
    <>
      {schema.title ?? name}
      {schema.description && <small> {schema.description}</small>}
    </>
  );
  if (schema.enum)
    return (
      <label>
        {label}
        <select value={value} onChange={(event) => set(event.currentTarget.value)}>
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
        onInput={(event) => set(event.currentTarget.value)}
      />
    </label>
  );
}
