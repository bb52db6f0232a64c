// Deletes that can be taken back: each is sent after ten seconds, unless it is taken back or the tab is closed.

import { useEffect, useState } from "preact/hooks";

import { asApiError } from "./hooks";
import { say } from "./notices";

export const DELAY_MS = 10_000;

export interface Pending {
  /** `entry 5`, `artifact 0197…`: what is deleted, for its views. */
  id: string;
  label: string;
  due: number;
}

const pending = new Map<string, Pending & { timer: ReturnType<typeof setTimeout> }>();
// Entries that are deleted, but may still be in a list that was loaded before.
const gone = new Set<string>();
const watchers = new Set<() => void>();
const changed = () => watchers.forEach((watcher) => watcher());

export function deleteLater(id: string, label: string, send: () => Promise<unknown>): void {
  if (pending.has(id)) return;
  const timer = setTimeout(async () => {
    try {
      await send();
      gone.add(id);
    } catch (error) {
      say(`${label} was not deleted: ${asApiError(error).message}`, "bad");
    }
    pending.delete(id);
    changed();
  }, DELAY_MS);
  pending.set(id, { id, label, due: Date.now() + DELAY_MS, timer });
  changed();
}

export function takeBack(id: string): void {
  clearTimeout(pending.get(id)?.timer);
  pending.delete(id);
  changed();
}

export const isGone = (id: string): boolean => gone.has(id);

export function takeAllBack(): void {
  [...pending.keys()].forEach(takeBack);
}

export function usePending(): Pending[] {
  const [list, setList] = useState<Pending[]>(() => [...pending.values()]);
  useEffect(() => {
    const watcher = () => setList([...pending.values()]);
    watchers.add(watcher);
    watcher();
    return () => void watchers.delete(watcher);
  }, []);
  return list;
}
