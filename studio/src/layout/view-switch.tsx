/** The choice of the main view of a run. */
import { isNarrow, view, type RunViewName } from "./views";

export function ViewSwitch() {
  const names: [RunViewName, string][] = [
    ["timeline", "Timeline"],
    ["conversation", "Conversation"],
  ];
  if (isNarrow.value) names.push(["details", "Details"]);
  const shown = view.value === "details" && !isNarrow.value ? "timeline" : view.value;
  return (
    <span class="seg" role="group" aria-label="View">
      {names.map(([name, label]) => (
        <button aria-pressed={shown === name} onClick={() => (view.value = name)}>
          {label}
        </button>
      ))}
    </span>
  );
}
