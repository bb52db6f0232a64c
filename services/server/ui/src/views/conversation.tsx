// One thread as a conversation. A window of its entries is on the page; it moves as one scrolls.

import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";

import type { ApiError, Hit } from "../api";
import { useApp } from "../context";
import type { Change } from "../feed";
import { dayOf } from "../format";
import { asApiError } from "../hooks";
import { after, before, oldestFirst, PAGE } from "../paging";
import { Copy, Empty, Head, Icon, inputValue, Sentinel, Trouble, Waiting } from "../parts/basics";
import { EntryView } from "../parts/entry";
import { replace, to } from "../route";

/** How many entries are on the page at once. */
const KEPT = 4 * PAGE;
/** Before the first entry of any thread. */
const BEGINNING = "1970-01-01";

interface Props {
  thread: string;
  /** Begins with the entries up to this time; without it, with the newest. */
  until: string | undefined;
  /** The entry to which the link leads. */
  at: number;
  back: boolean;
}

/** A part of the thread without gaps, oldest first. */
interface Part {
  entries: Hit[];
  earlier: boolean;
  later: boolean;
}

export function Conversation({ thread, until, at, back }: Props) {
  const app = useApp();
  const [part, setPart] = useState<Part>();
  const [error, setError] = useState<ApiError>();
  const [again, setAgain] = useState(0);
  const list = useRef<HTMLDivElement>(null);
  const atEnd = useRef(false);
  const hold = useHeldPlace(list, part);
  // The part as it will be drawn, because pages follow each other faster than they are drawn.
  const now = useRef<Part | undefined>(undefined);
  const change = (next: Part) => {
    now.current = next;
    setPart(next);
  };
  const queue = useRef(Promise.resolve());

  // From the place of the link, and again after a gap in the changes. Changes that come meanwhile are in neither.
  useEffect(() => {
    const stop = new AbortController();
    let early: Change[] = [];
    let listed = false;
    const feed = app.follow((changes) => {
      const mine = changes.filter((change) => change.thread === thread);
      if (mine.length === 0) return;
      if (listed && now.current) change(applied(now.current, mine));
      else early.push(...mine);
    });
    const place = now.current?.later ? now.current.entries.at(-1)?.created_at : until;
    before(thread, place, [], stop.signal).then(
      ({ entries, more }) => {
        setError(undefined);
        listed = true;
        change(applied({ entries, earlier: more, later: place !== undefined }, early));
        early = [];
      },
      (failure: unknown) => stop.signal.aborted || setError(asApiError(failure)),
    );
    return () => {
      stop.abort();
      feed.close();
    };
  }, [app.epoch, again]);
  useEffect(() => {
    if (error && app.trouble === null) setAgain((n) => n + 1);
  }, [app.trouble]);

  /** Puts a page before or behind the window, and takes as many entries away at its other end. */
  const extend = (direction: "earlier" | "later") => {
    queue.current = queue.current.then(async () => {
      const from = now.current;
      if (from === undefined || !from[direction] || !list.current?.isConnected) return;
      try {
        const { entries, more } =
          direction === "earlier"
            ? await before(thread, from.entries[0]?.created_at ?? until, from.entries)
            : await after(thread, from.entries.at(-1)?.created_at ?? until ?? BEGINNING, from.entries);
        setError(undefined);
        hold();
        const old = now.current ?? from;
        const known = new Set(old.entries.map(({ id }) => id));
        const added = entries.filter(({ id }) => !known.has(id));
        const all = direction === "earlier" ? [...added, ...old.entries] : [...old.entries, ...added];
        const cut = all.length > KEPT;
        if (direction === "earlier") change({ entries: all.slice(0, KEPT), earlier: more, later: old.later || cut });
        else change({ entries: all.slice(-KEPT), earlier: old.earlier || cut, later: more });
      } catch (failure) {
        setError(asApiError(failure));
      }
    });
  };

  const first = part === undefined;
  useLayoutEffect(() => {
    if (first) return;
    const chosen = at > 0 ? document.getElementById(`entry-${at}`) : null;
    if (chosen) chosen.scrollIntoView({ block: "center" });
    else list.current?.querySelector("article:last-of-type")?.scrollIntoView({ block: "end" });
  }, [first]);
  // A new entry is followed by one who reads the end.
  useLayoutEffect(() => {
    if (atEnd.current && part && !part.later) scrollTo({ top: document.documentElement.scrollHeight });
  }, [part?.entries.at(-1)?.id]);
  useEffect(() => {
    const scrolled = () => {
      atEnd.current = innerHeight + scrollY >= document.documentElement.scrollHeight - 120;
    };
    addEventListener("scroll", scrolled, { passive: true });
    return () => removeEventListener("scroll", scrolled);
  }, []);

  const newest = part?.entries.at(-1);
  return (
    <div class="detail">
      <Head title={thread}>
        <div class="row">
          {back && (
            <a class="button" href={to("threads")}>
              <Icon name="back" />
              <span>Threads</span>
            </a>
          )}
          <a class="button" href={to("search", undefined, { kind: "hybrid", thread })}>
            <Icon name="search" />
            <span>Search in it</span>
          </a>
          <label class="field inline date">
            <span class="name">Up to</span>
            <input
              type="date"
              value={until === undefined || until === BEGINNING ? "" : until.slice(0, 10)}
              onChange={(event) => replace(to("threads", thread, { until: inputValue(event) }))}
            />
          </label>
          <Copy text={thread} label="Copy its name" bare />
        </div>
      </Head>
      {error && <Trouble error={error} again={() => setAgain(again + 1)} />}
      {first && !error && <Waiting rows={5} />}
      {part && part.entries.length === 0 && !part.earlier && !part.later && <Empty title="This thread has no entries." />}
      {part?.earlier && (
        <p class="end">
          <a href={to("threads", thread, { until: BEGINNING })}>Go to the first entry</a>
        </p>
      )}
      {part && (
        <div class="entries talk" ref={list}>
          {part.earlier && <Sentinel key={`earlier ${part.entries[0]?.id ?? 0}`} onSeen={() => extend("earlier")} />}
          {part.entries.map((entry, i) => {
            const day = dayOf(entry.created_at);
            const previous = part.entries[i - 1];
            return [
              (previous === undefined || dayOf(previous.created_at) !== day) && (
                <h2 key={`day ${day}`} class="day">
                  {day}
                </h2>
              ),
              <EntryView key={entry.id} entry={entry} highlighted={entry.id === at} />,
            ];
          })}
          {part.later && <Sentinel key={`later ${newest?.id ?? 0}`} onSeen={() => extend("later")} />}
        </div>
      )}
      {part?.later && (
        <p class="end">
          <a href={to("threads", thread)}>Go to the newest</a>
        </p>
      )}
    </div>
  );
}

/** The part after the changes. A new entry is added only where the end of the thread is on the page. */
function applied(part: Part, changes: Change[]): Part {
  const list = new Map(part.entries.map((entry) => [entry.id, entry]));
  let later = part.later;
  for (const { operation, id, entry } of changes) {
    if (operation === "deleted") list.delete(Number(id));
    else if (entry && (list.has(entry.id) || (operation === "created" && !later))) list.set(entry.id, entry);
  }
  const entries = [...list.values()].sort(oldestFirst);
  return { entries: entries.slice(-KEPT), earlier: part.earlier || entries.length > KEPT, later };
}

/** Keeps what is read in its place while entries come before it. Returns what to call before they come. */
function useHeldPlace(list: { current: HTMLDivElement | null }, part: unknown): () => void {
  const held = useRef<{ element: Element; top: number } | undefined>(undefined);
  useLayoutEffect(() => {
    const { element, top } = held.current ?? {};
    held.current = undefined;
    if (element?.isConnected && top !== undefined) scrollBy({ top: element.getBoundingClientRect().top - top, behavior: "instant" });
  }, [part]);
  return () => {
    for (const element of list.current?.querySelectorAll("article") ?? []) {
      const { top, bottom } = element.getBoundingClientRect();
      if (bottom > 100) {
        held.current = { element, top };
        return;
      }
    }
  };
}
