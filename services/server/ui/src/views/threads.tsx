// The threads, and one of them as a conversation.

import { useEffect, useMemo, useRef, useState } from "preact/hooks";

import { api, type ApiError, type Hit, type Thread } from "../api";
import { useApp } from "../context";
import { newestFirst } from "../feed";
import { count, counted, dayOf } from "../format";
import { asApiError, useLoad, useWide } from "../hooks";
import { Button, Copy, Empty, Head, Icon, inputValue, Time, Trouble, Waiting } from "../parts/basics";
import { EntryView } from "../parts/entry";
import { type Route, to } from "../route";

const PAGE = 500;
const ENTRIES = 50;
/** How many entries of a thread are on the page at once. */
const KEPT = 400;

export function Threads({ route }: { route: Route }) {
  const wide = useWide(900);
  const opened = route.id;
  return (
    <section class="view panes">
      {(wide || opened === undefined) && <List opened={opened} />}
      {opened !== undefined ? (
        <Conversation key={`${opened} ${route.query.get("until") ?? ""}`} thread={opened} until={route.query.get("until") ?? undefined} at={Number(route.query.get("at") ?? 0)} back={!wide} />
      ) : (
        wide && <Empty title="Choose a thread." />
      )}
    </section>
  );
}

function List({ opened }: { opened: string | undefined }) {
  const { fresh } = useApp();
  const [pages, setPages] = useState(1);
  const [filter, setFilter] = useState("");
  const { value, error, reload } = useLoad(
    async (signal) => {
      const all: Thread[] = [];
      let total = 0;
      for (let page = 0; page < pages; page += 1) {
        const reply = await api.threads(PAGE, page * PAGE, signal);
        total = reply.total_threads;
        all.push(...reply.threads);
      }
      return { all, total };
    },
    "threads",
    `${fresh} ${pages}`,
  );
  const found = useMemo(() => {
    const wanted = filter.trim().toLowerCase();
    return value?.all.filter(({ thread_id }) => thread_id.toLowerCase().includes(wanted));
  }, [value, filter]);
  return (
    <div class="list">
      <Head title="Threads">{value && <span class="total">{count(value.total)}</span>}</Head>
      {error && <Trouble error={error} again={reload} />}
      {value === undefined && !error && <Waiting rows={6} />}
      {value && value.all.length > 0 && (
        <input type="search" aria-label="Filter threads by name" placeholder="Filter by name" value={filter} onInput={(event) => setFilter(inputValue(event))} />
      )}
      {value && value.all.length === 0 && <Empty title="There are no threads yet." />}
      {found && value && value.all.length > 0 && found.length === 0 && <Empty title="No thread has this in its name." />}
      {found && found.length > 0 && (
        <ul class="items">
          {found.map((thread) => (
            <li key={thread.thread_id}>
              <a href={to("threads", thread.thread_id)} aria-current={thread.thread_id === opened ? "page" : undefined}>
                <span class="name">{thread.thread_id}</span>
                <span class="facts">
                  {counted(thread.entry_count, "entry", "entries")} · <Time at={thread.last_entry} />
                </span>
                <Shares user={thread.sources.user} agent={thread.sources.agent} />
              </a>
            </li>
          ))}
        </ul>
      )}
      {value && value.all.length < value.total && (
        <div class="row">
          <Button onClick={() => setPages(pages + 1)}>Load more threads</Button>
          <small>
            {count(value.all.length)} of {count(value.total)}
          </small>
        </div>
      )}
    </div>
  );
}

/** Whose entries a thread has: agents' on the left, users' on the right. */
function Shares({ user, agent }: { user: number; agent: number }) {
  const share = (agent / Math.max(user + agent, 1)) * 100;
  return (
    <span class="shares" title={`${count(agent)} by agents, ${count(user)} by users`}>
      <svg viewBox="0 0 100 3" preserveAspectRatio="none" aria-hidden="true">
        <rect class="user" width="100" height="3" />
        <rect class="agent" width={share} height="3" />
      </svg>
      <span class="unseen">
        {count(agent)} by agents, {count(user)} by users
      </span>
    </span>
  );
}

interface ConversationProps {
  thread: string;
  /** Only entries up to this time, for a link to an entry. */
  until: string | undefined;
  /** The entry to which the link leads. */
  at: number;
  back: boolean;
}

function Conversation({ thread, until, at, back }: ConversationProps) {
  const { fresh } = useApp();
  // Oldest first. It starts with the newest page; earlier ones are put in front.
  const [entries, setEntries] = useState<Hit[]>();
  const [more, setMore] = useState(false);
  const [error, setError] = useState<ApiError>();
  const [busy, setBusy] = useState(false);
  const box = useRef<HTMLDivElement>(null);
  // How far the end of the list was below the view before earlier entries came in front of it.
  const fromEnd = useRef<number | undefined>(undefined);

  const page = (offset: number, signal?: AbortSignal) =>
    api.search("filters", { thread_id: thread, limit: ENTRIES, offset, ...(until === undefined ? {} : { end_date: until }) }, signal);

  // The newest page: at the start, and whenever something changed.
  useEffect(() => {
    const stop = new AbortController();
    page(0, stop.signal).then(
      ({ results }) => {
        setError(undefined);
        setEntries((old) => {
          const fresh = results.toReversed();
          const oldest = fresh[0];
          const earlier = (old ?? []).filter((entry) => oldest !== undefined && newestFirst(entry, oldest) > 0);
          return [...earlier, ...fresh];
        });
        setMore((old) => old || results.length === ENTRIES);
      },
      (failure: unknown) => stop.signal.aborted || setError(asApiError(failure)),
    );
    return () => stop.abort();
  }, [fresh]);

  const first = entries === undefined;
  useEffect(() => {
    if (first) return;
    const chosen = at > 0 ? document.getElementById(`entry-${at}`) : null;
    if (chosen) chosen.scrollIntoView({ block: "center" });
    else box.current?.lastElementChild?.scrollIntoView({ block: "end" });
  }, [first]);
  useEffect(() => {
    if (fromEnd.current === undefined) return;
    scrollTo({ top: document.documentElement.scrollHeight - fromEnd.current });
    fromEnd.current = undefined;
  }, [entries]);

  const earlier = async () => {
    if (busy || entries === undefined) return;
    setBusy(true);
    try {
      const { results } = await page(entries.length);
      fromEnd.current = document.documentElement.scrollHeight - scrollY;
      const known = new Set(entries.map(({ id }) => id));
      setEntries([...results.toReversed().filter(({ id }) => !known.has(id)), ...entries]);
      setMore(results.length === ENTRIES);
    } catch (failure) {
      setError(asApiError(failure));
    }
    setBusy(false);
  };
  const full = entries !== undefined && entries.length >= KEPT;
  const oldest = entries?.[0];
  return (
    <div class="detail" ref={box}>
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
          <Copy text={thread} label="Copy its name" bare />
        </div>
      </Head>
      {until !== undefined && (
        <p class="banner">
          <span>Shown up to entry {count(at)}.</span> <a href={to("threads", thread)}>Go to the newest</a>
        </p>
      )}
      {error && <Trouble error={error} />}
      {first && !error && <Waiting rows={5} />}
      {entries && entries.length === 0 && <Empty title="This thread has no entries." />}
      {entries && more && !full && (
        <div class="row middle">
          <Button disabled={busy} onClick={() => void earlier()}>
            {busy ? "Loading…" : "Earlier entries"}
          </Button>
        </div>
      )}
      {full && oldest && (
        <div class="row middle">
          <a class="button" href={to("threads", thread, { until: oldest.created_at, at: oldest.id })}>
            Earlier entries
          </a>
        </div>
      )}
      {entries && entries.length > 0 && (
        <div class="entries talk">
          {entries.map((entry, i) => {
            const day = dayOf(entry.created_at);
            const before = entries[i - 1];
            return [
              (before === undefined || dayOf(before.created_at) !== day) && (
                <h2 key={`day ${entry.id}`} class="day">
                  {day}
                </h2>
              ),
              <EntryView key={entry.id} entry={entry} highlighted={entry.id === at} />,
            ];
          })}
        </div>
      )}
    </div>
  );
}
