// Short messages at the bottom of the page.

import { useEffect, useState } from "preact/hooks";

export interface Notice {
  number: number;
  text: string;
  tone: "good" | "bad";
}

const SHOWN_MS = { good: 5_000, bad: 15_000 };
let notices: Notice[] = [];
let last = 0;
const watchers = new Set<() => void>();
const changed = () => watchers.forEach((watcher) => watcher());

export function say(text: string, tone: Notice["tone"] = "good"): void {
  last += 1;
  const notice = { number: last, text, tone };
  notices = [...notices.slice(-2), notice];
  changed();
  setTimeout(() => dismiss(notice.number), SHOWN_MS[tone]);
}

export function dismiss(number: number): void {
  notices = notices.filter((notice) => notice.number !== number);
  changed();
}

export function useNotices(): Notice[] {
  const [list, setList] = useState(notices);
  useEffect(() => {
    const watcher = () => setList(notices);
    watchers.add(watcher);
    watcher();
    return () => void watchers.delete(watcher);
  }, []);
  return list;
}
