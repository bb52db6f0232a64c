// Formats numbers and times for people.

const whole = new Intl.NumberFormat("en");
const full = new Intl.DateTimeFormat("en", { dateStyle: "medium", timeStyle: "medium" });
const day = new Intl.DateTimeFormat("en", { dateStyle: "medium" });
const utc = new Intl.DateTimeFormat("en", { dateStyle: "medium", timeZone: "UTC" });

export const count = (n: number): string => whole.format(n);

/** `1 entry`, `2 entries`. */
export const counted = (n: number, one: string, many = `${one}s`): string => `${count(n)} ${n === 1 ? one : many}`;

export const fullTime = (iso: string): string => full.format(new Date(iso));

/** How long ago a time is, if it is in the last week; otherwise its date. A future time is shown in full. */
export function ago(iso: string, now: number): string {
  const then = new Date(iso).getTime();
  const seconds = Math.round((now - then) / 1000);
  if (seconds < -60) return full.format(then);
  if (seconds < 5) return "now";
  if (seconds < 60) return `${seconds} s ago`;
  const minutes = Math.floor(seconds / 60);
  if (minutes < 60) return `${minutes} min ago`;
  const hours = Math.floor(minutes / 60);
  if (hours < 24) return `${hours} h ago`;
  const days = Math.floor(hours / 24);
  if (days < 7) return `${counted(days, "day")} ago`;
  return day.format(then);
}

export const dayOf = (iso: string): string => day.format(new Date(iso));
/** The day that a date such as `2026-11-24` names, in any time zone. */
export const dateOf = (date: string): string => utc.format(new Date(date));

export function bytes(n: number): string {
  if (n < 1024) return `${n} B`;
  if (n < 1024 * 1024) return `${(n / 1024).toFixed(n < 10_240 ? 1 : 0)} KB`;
  if (n < 1024 ** 3) return `${(n / 1024 ** 2).toFixed(1)} MB`;
  return `${(n / 1024 ** 3).toFixed(1)} GB`;
}

export function duration(seconds: number): string {
  if (seconds < 0.001) return `${Math.round(seconds * 1e6)} µs`;
  if (seconds < 1) return `${(seconds * 1000).toFixed(seconds < 0.01 ? 1 : 0)} ms`;
  if (seconds < 120) return `${seconds.toFixed(1)} s`;
  if (seconds < 7200) return `${Math.round(seconds / 60)} min`;
  return `${Math.round(seconds / 3600)} h`;
}
