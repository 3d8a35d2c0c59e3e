/** A short name of a team. */

/** A short name for the team's fingerprint, so that two runs of the same team can be recognised. */
export function fingerprint(prints: Record<string, string> | undefined): string {
  let hash = 0x811c9dc5;
  for (const char of JSON.stringify(prints ?? {}))
    hash = Math.imul(hash ^ char.charCodeAt(0), 0x01000193) >>> 0;
  return hash.toString(16).padStart(8, "0");
}
