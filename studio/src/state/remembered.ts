/** What this browser remembers of the page: the theme, the view and the sizes of panes. */
import { effect, signal, type Signal } from "@preact/signals";

/** A signal whose value is kept in the browser; storage may be unavailable, as in a file. */
export function remembered<T>(name: string, first: T): Signal<T> {
  const value = signal(first);
  try {
    value.value = JSON.parse(localStorage.getItem(name) ?? "") as T;
  } catch {
    /* Nothing is stored yet. */
  }
  effect(() => {
    try {
      localStorage.setItem(name, JSON.stringify(value.value));
    } catch {
      /* It is forgotten when the page is closed. */
    }
  });
  return value;
}
