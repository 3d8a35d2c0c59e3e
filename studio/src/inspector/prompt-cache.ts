/** Where the prefix for the prompt cache of the provider breaks. */
import { type RequestView } from "../api/schemas";
import { count } from "../formats";

export function cacheText(read: RequestView): string {
  const cache = read.cache!;
  const kept = `≈ ${count(cache.tokens)} of ${count(read.tokens)} tokens are as in the call before.`;
  if (cache.breaks_at === "none") return `Prompt-cache prefix kept: ${kept}`;
  if (cache.breaks_at === "messages")
    return `Prompt-cache prefix breaks after message ${cache.messages}: ${kept}`;
  const lost = "nothing after them can be read from the cache of the call before.";
  return `Prompt-cache prefix breaks at the ${cache.breaks_at}: ${lost}`;
}
