/** Dark or light. */
import { effect } from "@preact/signals";
import { remembered } from "./remembered";

/** "dark" or "light"; empty for that of the system. */
export const theme = remembered("theme", "");

effect(() => {
  if (theme.value) document.documentElement.dataset.theme = theme.value;
  else delete document.documentElement.dataset.theme;
});

export function changeTheme(): void {
  if (theme.value) theme.value = theme.value === "light" ? "dark" : "";
  else theme.value = matchMedia("(prefers-color-scheme: light)").matches ? "dark" : "light";
}
