// What is stored, as it is stored.

import { useEffect, useMemo, useState } from "preact/hooks";

import type { Hit } from "../api";
import { Button, Choices, Empty, Head, inputValue, Waiting } from "../parts/basics";
import { EntryView } from "../parts/entry";
import { useApp } from "../context";
import { type Change, newestFirst } from "../feed";
import { count, counted } from "../format";
import { to } from "../route";

/** How many entries the list keeps: the memory of the tab must not grow with the hours. */
const KEPT = 200;

interface Row {
  entry: Hit;
  mark?: string;
}

interface Shown {
  rows: Row[];
  /** Changes that came while it was paused. */
  missed: Change[];
  missedCount: number;
}

export function apply(rows: Row[], changes: Change[]): Row[] {
  let list = rows;
  for (const { operation, entry } of changes) {
    if (operation === "deleted") list = list.map((row) => (row.entry.id === entry.id ? { entry, mark: "deleted" } : row));
    else if (operation === "updated") list = list.map((row) => (row.entry.id === entry.id ? { entry, mark: "changed" } : row));
    else list = [{ entry, mark: "new" }, ...list];
  }
  return list.toSorted((a, b) => newestFirst(a.entry, b.entry)).slice(0, KEPT);
}

export function Activity() {
  const app = useApp();
  const [shown, setShown] = useState<Shown>();
  const [paused, setPaused] = useState(false);
  const [source, setSource] = useState<"all" | "user" | "agent">("all");
  const [thread, setThread] = useState("");

  useEffect(() => {
    const feed = app.follow({
      snapshot: (entries) =>
        setShown((old) => ({ rows: entries.map((entry) => ({ entry })), missed: [], missedCount: old === undefined ? 0 : old.missedCount })),
      changes: (changes) =>
        setShown((old) => {
          if (old === undefined) return old;
          if (!isPaused.current) return { ...old, rows: apply(old.rows, changes) };
          return { ...old, missed: [...old.missed, ...changes].slice(-KEPT), missedCount: old.missedCount + changes.length };
        }),
    });
    return () => feed.close();
  }, []);
  const isPaused = useMemo(() => ({ current: false }), []);
  isPaused.current = paused;

  const resume = () => {
    setPaused(false);
    setShown((old) => old && { rows: apply(old.rows, old.missed), missed: [], missedCount: 0 });
  };
  const threads = useMemo(() => [...new Set(shown?.rows.map(({ entry }) => entry.thread_id))].sort(), [shown]);
  const rows = shown?.rows.filter(({ entry }) => (source === "all" || entry.source === source) && (thread === "" || entry.thread_id === thread));
  return (
    <section class="view">
      <Head title="Activity">
        <div class="row">
          {threads.length > 1 && (
            <select class="short" aria-label="Thread" value={thread} onChange={(event) => setThread(inputValue(event))}>
              <option value="">All threads</option>
              {threads.map((name) => (
                <option key={name} value={name}>
                  {name}
                </option>
              ))}
            </select>
          )}
          <Choices
            name="source"
            label="Who wrote it"
            value={source}
            onChange={setSource}
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
          <span>Paused. {shown && shown.missedCount > 0 ? `${counted(shown.missedCount, "change")} since.` : "Nothing new since."}</span>
        </p>
      )}
      {rows === undefined ? (
        app.trouble === null && <Waiting rows={6} />
      ) : rows.length === 0 ? (
        <Empty title={shown?.rows.length === 0 ? "Nothing is stored yet." : "Nothing of this kind among the newest."}>
          {shown?.rows.length === 0 && (
            <p>
              Once a client stores something, it appears here. <a href={to("connect")}>Connect a client</a>
            </p>
          )}
        </Empty>
      ) : (
        <>
          <div class="entries brief" aria-label="The newest entries" role="feed">
            {rows.map(({ entry, mark }) => (
              <EntryView key={entry.id} entry={entry} mark={mark} showThread />
            ))}
          </div>
          <p class="end">
            The newest {count(rows.length)}. <a href={to("threads")}>All threads</a>
          </p>
        </>
      )}
    </section>
  );
}
