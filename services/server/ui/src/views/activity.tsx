// Stored, changed and deleted entries, as they are committed.

import { useEffect, useMemo, useRef, useState } from "preact/hooks";

import { api, type ApiError, type Hit } from "../api";
import { useApp } from "../context";
import type { Change } from "../feed";
import { count } from "../format";
import { asApiError, useLoad, useWide } from "../hooks";
import { Button, Choices, Empty, Head, Icon, inputValue, Time, Trouble, Waiting } from "../parts/basics";
import { isUnsaved } from "../parts/editor";
import { EntryView } from "../parts/entry";
import { replace, type Route, to } from "../route";

/** How many entries the list begins with, and its maximum. The memory of the tab must stay bounded. */
const NEWEST = 50;
const MAX_ROWS = 200;

type Source = "all" | "user" | "agent";

interface Row {
  key: string;
  /** Its position: the time of the entry, or of the change if the entry was not in the list. */
  at: number;
  entry?: Hit | undefined;
  change?: Change;
}

interface Missed {
  created: number;
  changed: number;
  deleted: number;
  /** Whether there are changes that could not be counted. */
  more: boolean;
}

interface Shown {
  rows: Row[];
  /** The rows that will be shown after the pause; the same as `rows` without a pause. */
  latest: Row[];
  missed: Missed;
}

const NONE: Missed = { created: 0, changed: 0, deleted: 0, more: false };
const MARKS = { created: "new", updated: "changed", restored: "changed", deleted: "deleted" } as const;

const rowOf = (entry: Hit): Row => ({ key: `context ${entry.id}`, at: Date.parse(entry.created_at), entry });

/** The rows after the changes. A listed entry is marked in its place; other changes come on top. */
function apply(rows: Row[], changes: Change[]): Row[] {
  const list = new Map(rows.map((row) => [row.key, row]));
  for (const change of changes) {
    const key = `${change.entity} ${change.id}`;
    const old = list.get(key);
    const entry = change.entry ?? old?.entry;
    // A change without a body concerns an entry that is deleted by now. The change of its deletion follows.
    if (change.entity === "context" && entry === undefined && change.operation !== "deleted") continue;
    const at = entry && change.operation === "created" ? Date.parse(entry.created_at) : Date.parse(change.time);
    list.set(key, { key, at: old && change.entity === "context" ? old.at : at, entry, change });
  }
  const sorted = [...list.values()].sort((a, b) => b.at - a.at || (b.entry?.id ?? 0) - (a.entry?.id ?? 0));
  return sorted.filter(({ entry }, i) => i < MAX_ROWS || (entry && isUnsaved(entry.id)));
}

export function Activity({ route }: { route: Route }) {
  const app = useApp();
  const thread = route.query.get("thread") ?? "";
  const requested = route.query.get("source");
  const source: Source = requested === "user" || requested === "agent" ? requested : "all";
  const select = (part: { thread?: string; source?: Source }) => {
    const wanted = { thread, source, ...part };
    replace(to("activity", undefined, { thread: wanted.thread, source: wanted.source === "all" ? "" : wanted.source }));
  };
  const [shown, setShown] = useState<Shown>();
  const [error, setError] = useState<ApiError>();
  const [again, setAgain] = useState(0);
  const [paused, setPaused] = useState(false);
  const wide = useWide(720);
  const isPaused = useRef(false);
  isPaused.current = paused;

  useEffect(() => setShown(undefined), [thread, source]);
  useEffect(() => {
    const stop = new AbortController();
    let listed = false;
    let early: Change[] = [];
    // A deleted entry has no source. Its deletion concerns this list if the list shows the entry.
    const concerns = (change: Change, rows: Row[]) => {
      if (thread === "" && source === "all") return true;
      if (change.entity !== "context" || (thread !== "" && change.thread !== thread)) return false;
      return source === "all" || change.entry?.source === source || rows.some(({ key }) => key === `context ${change.id}`);
    };
    const add = (changes: Change[]) =>
      setShown((old) => {
        if (old === undefined) return old;
        const wanted = changes.filter((change) => concerns(change, old.latest));
        if (wanted.length === 0) return old;
        const latest = apply(old.latest, wanted);
        if (!isPaused.current) return { ...old, rows: latest, latest };
        const missed = { ...old.missed };
        for (const { operation } of wanted) missed[operation === "created" || operation === "deleted" ? operation : "changed"] += 1;
        return { ...old, latest, missed };
      });
    const feed = app.follow((changes) => {
      if (listed) add(changes);
      else early = [...early, ...changes].slice(-MAX_ROWS);
    });
    const filters = { ...(thread === "" ? {} : { thread_id: thread }), ...(source === "all" ? {} : { source }) };
    api.search("filters", { ...filters, limit: NEWEST }, stop.signal).then(
      ({ results }) => {
        const latest = results.map(rowOf);
        setError(undefined);
        setShown((old) =>
          isPaused.current && old ? { ...old, latest, missed: { ...old.missed, more: true } } : { rows: latest, latest, missed: NONE },
        );
        listed = true;
        add(early);
        early = [];
      },
      (failure: unknown) => stop.signal.aborted || setError(asApiError(failure)),
    );
    return () => {
      stop.abort();
      feed.close();
    };
  }, [thread, source, app.epoch, again]);
  useEffect(() => {
    if (error && app.trouble === null) setAgain((n) => n + 1);
  }, [app.trouble]);

  const resume = () => {
    setPaused(false);
    setShown((old) => old && { rows: old.latest, latest: old.latest, missed: NONE });
  };
  const rows = shown?.rows;
  const filtered = thread !== "" || source !== "all";
  const offered = useThreads(thread, rows);
  return (
    <section class="view">
      <Head title="Activity">
        <div class="row">
          <select class="short" aria-label="Thread" value={thread} onChange={(event) => select({ thread: inputValue(event) })}>
            <option value="">All threads</option>
            {offered.map((name) => (
              <option key={name} value={name}>
                {name}
              </option>
            ))}
          </select>
          <Choices
            name="source"
            label="Who wrote it"
            value={source}
            onChange={(source) => select({ source })}
            choices={[
              { value: "all", label: "Everyone" },
              { value: "agent", label: "Agents" },
              { value: "user", label: "Users" },
            ]}
          />
          <Button icon={paused ? "play" : "pause"} pressed={paused} onClick={() => (paused ? resume() : setPaused(true))}>
            {paused ? "Resume" : "Pause"}
          </Button>
        </div>
      </Head>
      {paused && (
        <p class="banner" role="status">
          <span>Paused. {inWords(shown?.missed ?? NONE)}</span>
        </p>
      )}
      {error && app.trouble === null && <Trouble error={error} again={() => setAgain(again + 1)} />}
      {rows === undefined ? (
        !error && app.trouble === null && <Waiting rows={6} />
      ) : rows.length === 0 ? (
        filtered ? (
          <Empty title="There is nothing of this kind.">
            <p>Once it is stored, it appears here.</p>
          </Empty>
        ) : (
          <Empty title="Nothing is stored yet.">
            <p>
              Once a client stores something, it appears here. <a href={to("connect")}>Connect a client</a>
            </p>
          </Empty>
        )
      ) : (
        <>
          <div class="entries" aria-label="The newest entries" role="feed">
            {rows.map(({ key, entry, change }) =>
              entry ? (
                <EntryView key={key} entry={entry} brief={wide ? 600 : 220} mark={change && MARKS[change.operation]} showThread={thread === ""} />
              ) : (
                change && <Line key={key} change={change} />
              ),
            )}
          </div>
          <p class="end">
            The newest {count(rows.length)}. {thread === "" ? <a href={to("threads")}>All threads</a> : <a href={to("threads", thread)}>The whole thread</a>}
          </p>
        </>
      )}
    </section>
  );
}

/** The missed changes, in words. */
function inWords({ created, changed, deleted, more }: Missed): string {
  const parts = [created > 0 && `${count(created)} new`, changed > 0 && `${count(changed)} changed`, deleted > 0 && `${count(deleted)} deleted`].filter(Boolean);
  if (more) parts.push("more that were not counted");
  return parts.length === 0 ? "Nothing new since." : `Since then: ${parts.join(", ")}.`;
}

/** The threads to choose from: those with the latest activity, and those of the rows. */
function useThreads(chosen: string, rows: Row[] | undefined): string[] {
  const listed = useLoad((signal) => api.threads(100, 0, signal), "threads");
  return useMemo(() => {
    const names = new Set(listed.value?.threads.map(({ thread_id }) => thread_id));
    for (const { entry } of rows ?? []) if (entry) names.add(entry.thread_id);
    if (chosen !== "") names.add(chosen);
    return [...names].sort();
  }, [chosen, rows, listed.value]);
}

/** A change of an artifact or of a deleted entry. */
function Line({ change: { entity, id, operation, time, thread, title, version } }: { change: Change }) {
  const name = entity === "artifact" ? (title ?? "An artifact") : `Entry ${id}`;
  return (
    <article class="entry line" aria-label={name}>
      <div class="meta">
        {entity === "artifact" && <Icon name="artifacts" />}
        {entity === "artifact" && operation !== "deleted" ? <a class="thread-name" href={to("artifacts", id)}>{name}</a> : <span>{name}</span>}
        {thread !== undefined && (
          <a class="thread-name" href={to("threads", thread)}>
            {thread}
          </a>
        )}
        <Time at={time} />
        {version !== undefined && operation !== "deleted" && version > 1 && <span>version {count(version)}</span>}
        <span class={`mark ${MARKS[operation]}`}>{operation === "restored" ? "restored" : MARKS[operation]}</span>
      </div>
    </article>
  );
}
