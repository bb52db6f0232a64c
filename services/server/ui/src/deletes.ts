// Deletes that can be taken back: each is sent after ten seconds, unless it is taken back, the tab is closed or the page
// signs out.

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

// The timer is absent once the request is sent.
const pending = new Map<string, Pending & { timer: ReturnType<typeof setTimeout> | undefined }>();
// Entries that are deleted, but may still be in a list that was loaded before.
const gone = new Set<string>();
const watchers = new Set<() => void>();
const changed = () => watchers.forEach((watcher) => watcher());

export function deleteLater(id: string, label: string, send: () => Promise<unknown>): void {
  if (pending.has(id)) return;
  const timer = setTimeout(async () => {
    const sent = pending.get(id);
    if (sent) sent.timer = undefined;
    // After signing out, another owner may have an entry with this id, and a delete of it.
    const isCurrent = () => pending.get(id) === sent;
    try {
      await send();
      if (isCurrent()) gone.add(id);
    } catch (error) {
      say(`${label} was not deleted: ${asApiError(error).message}`, "bad");
    }
    if (isCurrent()) pending.delete(id);
    changed();
  }, DELAY_MS);
  pending.set(id, { id, label, due: Date.now() + DELAY_MS, timer });
  changed();
}

/** Takes a delete back, unless its request is already sent. */
export function takeBack(id: string): void {
  const timer = pending.get(id)?.timer;
  if (timer === undefined) return;
  clearTimeout(timer);
  pending.delete(id);
  changed();
}

export const isGone = (id: string): boolean => gone.has(id);

/** Takes every delete back whose request is not sent yet, and forgets the others. */
export function takeAllBack(): void {
  pending.forEach(({ timer }) => clearTimeout(timer));
  pending.clear();
  gone.clear();
  changed();
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
