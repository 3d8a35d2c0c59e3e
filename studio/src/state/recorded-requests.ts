/** The recorded requests of the shown run. */
import { exported } from "../api/exported";
import { api } from "../api/requests";
import { type RequestView } from "../api/schemas";

/** The recorded requests that were read, by run and key: a finished run's never change. */
const reads = new Map<string, Promise<RequestView>>();

export function readRequest(run: string, key: string): Promise<RequestView> {
  if (exported) {
    const found = exported.requests.find((each) => each.key === key);
    return found
      ? Promise.resolve(found)
      : Promise.reject(new Error("the log has no recorded request for this response"));
  }
  const name = `${run}\n${key}`;
  let known = reads.get(name);
  if (!known) {
    known = api.read(run, key);
    reads.set(name, known);
    known.catch(() => reads.delete(name));
  }
  return known;
}
