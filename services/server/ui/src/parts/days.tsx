// How many entries were created on each of the last days, as bars. Days are in UTC, as the service counts them.

import { api } from "../api";
import { count, counted, dateOf } from "../format";
import { useLoad, useNow } from "../hooks";

const DAYS = 60;
const DAY = 86_400_000;

export interface Days {
  /** Oldest first; the last one is today. */
  days: { date: string; entries: number }[];
  /** The entries of the day that has most of them, at least 1. */
  most: number;
  /** Whether every entry of these days was counted. */
  complete: boolean;
  /** The number of entries that were counted. */
  scanned: number;
}

/** The last days of a thread, or of all threads. They are loaded again whenever `fresh` changes. */
export function useDays(thread: string | undefined, fresh: number | string) {
  const today = Math.floor(useNow() / DAY);
  const date = (day: number) => new Date(day * DAY).toISOString().slice(0, 10);
  const first = today - DAYS + 1;
  return useLoad(
    async (signal): Promise<Days> => {
      const { days, complete, scanned } = await api.days(date(first), thread, signal);
      const counts = new Map(days.map(({ date, entry_count }) => [date, entry_count]));
      const all = Array.from({ length: DAYS }, (_, i) => ({ date: date(first + i), entries: counts.get(date(first + i)) ?? 0 }));
      return { days: all, most: Math.max(...all.map(({ entries }) => entries), 1), complete, scanned };
    },
    `days ${today} ${thread ?? ""}`,
    fresh,
  );
}

/** Says that the bars do not show every entry, if that is so. */
export function Uncounted({ of: { complete, scanned } }: { of: Days }) {
  if (complete) return null;
  return <p class="note">{`Only the newest ${count(scanned)} entries are counted. Earlier days are missing.`}</p>;
}

export function DayBars({ of: { days, most } }: { of: Days }) {
  const total = days.reduce((sum, { entries }) => sum + entries, 0);
  return (
    <svg viewBox={`0 0 ${DAYS * 10} 100`} preserveAspectRatio="none" role="img" aria-label={`${counted(total, "entry", "entries")} in ${DAYS} days, at most ${count(most)} on one day`}>
      {days.map(({ date, entries }, i) => {
        const height = entries === 0 ? 1 : Math.max((entries / most) * 100, 3);
        return (
          <rect key={date} class={entries === 0 ? "none" : "agent"} x={i * 10 + 1} width="8" y={100 - height} height={height}>
            <title>{`${dateOf(date)}: ${counted(entries, "entry", "entries")}`}</title>
          </rect>
        );
      })}
    </svg>
  );
}
