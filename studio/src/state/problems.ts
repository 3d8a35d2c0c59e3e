/** What failed, for the user to read. */
import { signal } from "@preact/signals";

export const problem = signal("");

/** Do what the user asked for; a message about something earlier goes away. */
export async function attempt(action: () => Promise<void>): Promise<boolean> {
  problem.value = "";
  return update(action);
}

/** Do what nobody asked for, such as a refresh: a message that the user has not read yet stays. */
export async function update(action: () => Promise<void>): Promise<boolean> {
  try {
    await action();
    return true;
  } catch (error) {
    problem.value = error instanceof Error ? error.message : String(error);
    return false;
  }
}
