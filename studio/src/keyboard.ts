/** The keys of the page. */
import { step, stepTransfer, tab } from "./state/shown-run";
import { config } from "./state/team";

const KEYS: Record<string, () => void> = {
  j: () => step(1),
  ArrowDown: () => step(1),
  k: () => step(-1),
  ArrowUp: () => step(-1),
  "]": () => stepTransfer(1),
  "[": () => stepTransfer(-1),
  Home: () => step(-1e9),
  End: () => step(1e9),
  r: () => (tab.value = "read"),
  d: () => (tab.value = "diff"),
  e: () => (tab.value = "event"),
  f: () => {
    if (config.value.can_write) tab.value = "fork";
  },
  "/": () => document.querySelector<HTMLInputElement>(".find input")?.focus(),
};

export function onKey(event: KeyboardEvent): void {
  const target = event.target as HTMLElement;
  const isArrow = event.key.startsWith("Arrow");
  if (
    event.ctrlKey ||
    event.metaKey ||
    event.altKey ||
    target.matches("input, textarea, select") ||
    (isArrow && !!target.closest(".sidebar, .body, .lanes"))
  )
    return;
  const action = KEYS[event.key];
  if (action) {
    action();
    event.preventDefault();
  }
}
