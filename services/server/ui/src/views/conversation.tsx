// One thread as a conversation. The page holds only a part of its entries. Scrolling moves that part.

import { Fragment } from "preact";
import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";

import type { ApiError, Hit } from "../api";
import { useApp } from "../context";
import type { Change } from "../feed";
import { dayOf } from "../format";
import { asApiError } from "../hooks";
import { after, before, beginning, oldestFirst, PAGE, type Page } from "../paging";
import { Button, Copy, Empty, Head, Icon, inputValue, Sentinel, Trouble, Waiting } from "../parts/basics";
import { DayBars, Uncounted, useDays } from "../parts/days";
import { isUnsaved } from "../parts/editor";
import { EntryView } from "../parts/entry";
import { replace, to } from "../route";

/** How many entries are on the page at once. */
const MAX_ENTRIES = 4 * PAGE;

interface Props {
  thread: string;
  /** Begins with the entries up to this time; without it, with the newest. */
  until: string | undefined;
  /** The id of the linked entry. */
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
  const anchor = useScrollAnchor(list, part);
  // The newest part, because pages may arrive faster than they are rendered.
  const now = useRef<Part | undefined>(undefined);
  const change = (next: Part) => {
    now.current = next;
    setPart(next);
  };
  const queue = useRef(Promise.resolve());
  // How often a part was loaded anew. Pages that were requested before do not belong to it.
  const loads = useRef(0);

  // Loads the thread around the link, and again after a gap in the changes. Changes that arrive before the entries are
  // applied afterwards.
  useEffect(() => {
    const stop = new AbortController();
    let early: Change[] = [];
    let listed = false;
    const feed = app.follow((changes) => {
      const mine = changes.filter((change) => change.thread === thread);
      if (mine.length === 0) return;
      if (listed && now.current) change(applied(now.current, mine, atEnd.current));
      else early.push(...mine);
    });
    const { current } = now;
    const end = current === undefined ? until : current.later ? current.entries.at(-1)?.created_at : undefined;
    upTo(thread, end, at, stop.signal).then(
      ({ entries, more }) => {
        setError(undefined);
        listed = true;
        loads.current += 1;
        change(applied({ entries, earlier: more, later: end !== undefined }, early, true));
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

  /** Adds a page before or after the part, and removes as many entries at its other end. */
  const extend = (direction: "earlier" | "later") => {
    queue.current = queue.current.then(async () => {
      const from = now.current;
      const load = loads.current;
      if (from === undefined || !from[direction] || !list.current?.isConnected) return;
      try {
        const { entries, more } =
          direction === "earlier"
            ? await before(thread, from.entries[0]?.created_at ?? until, from.entries)
            : await after(thread, from.entries.at(-1)?.created_at ?? until ?? "1970-01-01", from.entries);
        if (load !== loads.current) return;
        setError(undefined);
        anchor();
        const old = now.current ?? from;
        const loaded = new Set(old.entries.map(({ id }) => id));
        const added = entries.filter(({ id }) => !loaded.has(id));
        const all = direction === "earlier" ? [...added, ...old.entries] : [...old.entries, ...added];
        const cut = all.length > MAX_ENTRIES;
        if (direction === "earlier") change({ entries: all.slice(0, MAX_ENTRIES), earlier: more, later: old.later || cut });
        else change({ entries: all.slice(-MAX_ENTRIES), earlier: old.earlier || cut, later: more });
      } catch (failure) {
        if (load === loads.current) setError(asApiError(failure));
      }
    });
  };

  /** Shows the part with which the view began. A link to it changes nothing if the URL already names it. */
  const startOver = () => {
    loads.current += 1;
    now.current = undefined;
    setPart(undefined);
    setAgain((n) => n + 1);
  };
  const goToFirst = async () => {
    try {
      const start = await beginning(thread);
      if (start === undefined) return;
      location.hash = to("threads", thread, { until: start.created_at, at: start.id });
      if (start.created_at === until) startOver();
    } catch (failure) {
      setError(asApiError(failure));
    }
  };

  const first = part === undefined;
  useLayoutEffect(() => {
    if (first) return;
    const chosen = at > 0 ? document.getElementById(`entry-${at}`) : null;
    if (chosen) chosen.scrollIntoView({ block: "center" });
    else list.current?.querySelector("article:last-of-type")?.scrollIntoView({ block: "end" });
  }, [first]);
  // When the user is at the end, the page scrolls to a new entry.
  useLayoutEffect(() => {
    if (atEnd.current && part && !part.later) scrollTo({ top: document.documentElement.scrollHeight });
  }, [part?.entries.at(-1)?.id]);
  useEffect(() => {
    const scrolled = () => {
      atEnd.current = innerHeight + scrollY >= document.documentElement.scrollHeight - 120;
    };
    // A short thread cannot be scrolled.
    if (!first) scrolled();
    addEventListener("scroll", scrolled, { passive: true });
    return () => removeEventListener("scroll", scrolled);
  }, [first]);

  const newest = part?.entries.at(-1);
  return (
    <div class="detail">
      <Head title={thread}>
        <Sparkline thread={thread} fresh={newest?.id ?? 0} />
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
              value={until?.slice(0, 10) ?? ""}
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
        <div class="row middle">
          <Button small tone="quiet" onClick={() => void goToFirst()}>
            Go to the first entry
          </Button>
        </div>
      )}
      {part && (
        <div class="entries talk" ref={list}>
          {part.earlier && <Sentinel key={`earlier ${loads.current} ${part.entries[0]?.id ?? 0}`} onSeen={() => extend("earlier")} />}
          {part.entries.map((entry, i) => {
            const day = dayOf(entry.created_at);
            const previous = part.entries[i - 1];
            return (
              <Fragment key={entry.id}>
                {(previous === undefined || dayOf(previous.created_at) !== day) && <h2 class="day">{day}</h2>}
                <EntryView entry={entry} highlighted={entry.id === at} />
              </Fragment>
            );
          })}
          {part.later && <Sentinel key={`later ${loads.current} ${newest?.id ?? 0}`} onSeen={() => extend("later")} />}
        </div>
      )}
      {part?.later && (
        <p class="end">
          <a href={to("threads", thread)} onClick={() => until === undefined && startOver()}>
            Go to the newest
          </a>
        </p>
      )}
    </div>
  );
}

/** Bars that show when entries were added to the thread. */
function Sparkline({ thread, fresh }: { thread: string; fresh: number }) {
  const { value } = useDays(thread, fresh);
  return (
    <>
      <span class="sparkline">{value && <DayBars of={value} />}</span>
      {value && <Uncounted of={value} />}
    </>
  );
}

/** The entries up to a time, as far back as the entry `wanted`: all entries of a batch have the same time. */
async function upTo(thread: string, until: string | undefined, wanted: number, signal: AbortSignal): Promise<Page> {
  let page = await before(thread, until, [], signal);
  while (wanted > 0 && page.more && page.entries.length < MAX_ENTRIES && !page.entries.some(({ id }) => id === wanted)) {
    const { entries, more } = await before(thread, page.entries[0]?.created_at, page.entries, signal);
    page = { entries: [...entries, ...page.entries], more };
  }
  return page;
}

/**
 * The part after the changes. A new entry is added if the end of the thread is on the page. When the page is full, the
 * oldest entry is removed, but only if the user is at the end.
 */
function applied(part: Part, changes: Change[], isAtEnd: boolean): Part {
  const list = new Map(part.entries.map((entry) => [entry.id, entry]));
  let { later } = part;
  for (const { operation, id, entry } of changes) {
    if (operation === "deleted") {
      if (!isUnsaved(Number(id))) list.delete(Number(id));
    } else if (entry && list.has(entry.id)) list.set(entry.id, entry);
    else if (entry && operation === "created" && !later) {
      if (isAtEnd || list.size < MAX_ENTRIES) list.set(entry.id, entry);
      else later = true;
    }
  }
  const entries = [...list.values()].sort(oldestFirst);
  return { entries: entries.slice(-MAX_ENTRIES), earlier: part.earlier || entries.length > MAX_ENTRIES, later };
}

/** Keeps the visible entries in place while others are added before them. Call the returned function before adding. */
function useScrollAnchor(list: { current: HTMLDivElement | null }, part: unknown): () => void {
  const anchored = useRef<{ element: Element; top: number } | undefined>(undefined);
  useLayoutEffect(() => {
    const { element, top } = anchored.current ?? {};
    anchored.current = undefined;
    if (element?.isConnected && top !== undefined) scrollBy({ top: element.getBoundingClientRect().top - top, behavior: "instant" });
  }, [part]);
  return () => {
    for (const element of list.current?.querySelectorAll("article") ?? []) {
      const { top, bottom } = element.getBoundingClientRect();
      if (bottom > 100) {
        anchored.current = { element, top };
        return;
      }
    }
  };
}
