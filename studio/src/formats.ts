/** Numbers, money and times as text. */

export const money = (cost: number): string =>
  cost >= 1 ? `$${cost.toFixed(2)}` : `$${cost.toFixed(4)}`;

export const count = (value: number): string => value.toLocaleString("en");

export function duration(seconds: number): string {
  if (seconds < 1) return `${Math.round(seconds * 1000)} ms`;
  if (seconds < 60) return `${seconds.toFixed(1)} s`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)} m ${Math.round(seconds % 60)} s`;
  if (seconds < 86400)
    return `${Math.floor(seconds / 3600)} h ${Math.round((seconds % 3600) / 60)} m`;
  return `${Math.round(seconds / 86400)} d`;
}

export function ago(time: number, now = Date.now() / 1000): string {
  const seconds = now - time;
  if (seconds < 60) return "now";
  if (seconds < 3600) return `${Math.floor(seconds / 60)}m`;
  if (seconds < 86400) return `${Math.floor(seconds / 3600)}h`;
  return `${Math.floor(seconds / 86400)}d`;
}
