/** What failed, for the user to read. */
import { signal } from "@preact/signals";

/** A message about the page as a whole; what concerns a field or a form is shown there. */
export const problem = signal("");
const show = (message: string): void => {
  problem.value = message;
};

/**
 * Do what the user asked for; a message about something earlier goes away. A form that asked for it shows
 * what failed itself.
 */
export async function attempt(action: () => Promise<void>, report = show): Promise<boolean> {
  show("");
  report("");
  return update(action, report);
}

/** Do what nobody asked for, such as a refresh: a message that the user has not read yet stays. */
export async function update(action: () => Promise<void>, report = show): Promise<boolean> {
  try {
    await action();
    return true;
  } catch (error) {
    report(error instanceof Error ? error.message : String(error));
    return false;
  }
}
