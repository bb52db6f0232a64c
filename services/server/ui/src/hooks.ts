import { useCallback, useEffect, useRef, useState } from "preact/hooks";

import { ApiError } from "./api";

export interface Loaded<T> {
  value: T | undefined;
  error: ApiError | undefined;
  busy: boolean;
  /** Loads again; meanwhile the current value stays. */
  reload(): void;
}

/**
 * Loads a value. When `identity` changes, the old value is dropped at once. When `freshness` changes, the value is
 * loaded again after the current load has ended, so that a value arrives even if `freshness` changes all the time.
 */
export function useLoad<T>(
  load: (signal: AbortSignal) => Promise<T>,
  identity: string,
  freshness: number | string = "",
): Loaded<T> {
  const [state, setState] = useState<{ of: string; value?: T; error?: ApiError; busy: boolean }>({ of: identity, busy: true });
  const [again, setAgain] = useState(0);
  const flight = useRef<{ of: string; stop: AbortController; stale: boolean } | undefined>(undefined);
  const current = useRef(load);
  current.current = load;
  useEffect(() => {
    if (flight.current?.of === identity) {
      flight.current.stale = true;
      return;
    }
    flight.current?.stop.abort();
    const mine = { of: identity, stop: new AbortController(), stale: false };
    flight.current = mine;
    const { signal } = mine.stop;
    setState((old) => (old.of === identity ? { ...old, busy: true } : { of: identity, busy: true }));
    const end = () => {
      flight.current = undefined;
      if (mine.stale) setAgain((n) => n + 1);
    };
    current.current(signal).then(
      (value) => {
        if (signal.aborted) return;
        setState({ of: identity, value, busy: false });
        end();
      },
      (error: unknown) => {
        if (signal.aborted) return;
        const apiError = asApiError(error);
        setState((old) => ({ of: identity, ...(old.value === undefined ? {} : { value: old.value }), error: apiError, busy: false }));
        end();
      },
    );
  }, [identity, freshness, again]);
  useEffect(() => () => flight.current?.stop.abort(), []);
  const reload = useCallback(() => setAgain((n) => n + 1), []);
  const shown = state.of === identity ? state : { busy: true, value: undefined, error: undefined };
  return { value: shown.value, error: shown.error, busy: shown.busy, reload };
}

export function asApiError(error: unknown): ApiError {
  return error instanceof ApiError ? error : new ApiError(0, "PAGE", error instanceof Error ? error.message : String(error));
}

// One clock for every relative time on the page.
const watchers = new Set<(now: number) => void>();
setInterval(() => {
  const now = Date.now();
  for (const watcher of watchers) watcher(now);
}, 20_000);

export function useNow(): number {
  const [now, setNow] = useState(Date.now);
  useEffect(() => {
    watchers.add(setNow);
    return () => void watchers.delete(setNow);
  }, []);
  return now;
}

/** Whether the window is at least this wide. */
export function useWide(pixels: number): boolean {
  const [wide, setWide] = useState(() => matchMedia(`(min-width: ${pixels}px)`).matches);
  useEffect(() => {
    const query = matchMedia(`(min-width: ${pixels}px)`);
    const changed = () => setWide(query.matches);
    query.addEventListener("change", changed);
    changed();
    return () => query.removeEventListener("change", changed);
  }, [pixels]);
  return wide;
}
