/** A field for JSON; what is wrong with it is said below it. */
import { useId } from "preact/hooks";

interface JsonFieldProps {
  label: string;
  value: string;
  problem: string | undefined;
  rows: number;
  set: (text: string) => void;
}

export function JsonField({ label, value, problem, rows, set }: JsonFieldProps) {
  const id = useId();
  return (
    <div>
      <label>
        {label}
        <textarea
          class="mono"
          rows={rows}
          value={value}
          aria-invalid={!!problem}
          aria-describedby={problem ? id : undefined}
          onInput={(input) => set(input.currentTarget.value)}
        />
      </label>
      {problem && (
        <p class="wrong" role="alert" id={id}>
          {problem}
        </p>
      )}
    </div>
  );
}

/** Parse the text of a field. Throws what to show below it. */
export function parseJson(text: string): unknown {
  try {
    return JSON.parse(text) as unknown;
  } catch (error) {
    throw new Error(`This is not JSON: ${error instanceof Error ? error.message : String(error)}`);
  }
}
