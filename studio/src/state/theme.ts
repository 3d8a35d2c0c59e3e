/** Dark or light. */
import { effect, signal } from "@preact/signals";

export const theme = signal(storedTheme());

function storedTheme(): string {
  try {
    return localStorage.getItem("theme") ?? "";
  } catch {
    return "";
  }
}

effect(() => {
  if (theme.value) document.documentElement.dataset.theme = theme.value;
  else delete document.documentElement.dataset.theme;
  try {
    localStorage.setItem("theme", theme.value);
  } catch {
    /* Storage may be unavailable, as in a file. */
  }
});
