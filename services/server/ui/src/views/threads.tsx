// The threads, and beside them the open thread.

import { useEffect, useState } from "preact/hooks";

import { api, type Thread } from "../api";
import { useApp } from "../context";
import { count, counted } from "../format";
import { useLoad, useWide } from "../hooks";
import { Button, Empty, Head, inputValue, Time, Trouble, Waiting } from "../parts/basics";
import { type Route, to } from "../route";
import { Conversation } from "./conversation";

const PAGE = 500;

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
  const [name, setName] = useState("");
  useEffect(() => {
    const wanted = filter.trim();
    const timer = setTimeout(() => setName(wanted), wanted === "" ? 0 : 200);
    return () => clearTimeout(timer);
  }, [filter]);
  const { value, error, reload } = useLoad(
    async (signal) => {
      const all: Thread[] = [];
      let total = 0;
      for (let page = 0; page < pages; page += 1) {
        const reply = await api.threads(PAGE, page * PAGE, signal, name);
        total = reply.total_threads;
        all.push(...reply.threads);
      }
      return { all, total };
    },
    `threads ${name}`,
    `${fresh} ${pages}`,
  );
  const found = value?.all;
  return (
    <div class="list">
      <Head title="Threads">{value && <span class="total">{count(value.total)}</span>}</Head>
      {error && <Trouble error={error} again={reload} />}
      {value === undefined && !error && <Waiting rows={6} />}
      {((value && value.all.length > 0) || filter !== "") && (
        <input type="search" maxLength={256} aria-label="Filter threads by name" placeholder="Filter by name" value={filter} onInput={(event) => setFilter(inputValue(event))} />
      )}
      {value && value.all.length === 0 && <Empty title={name === "" ? "There are no threads yet." : "No thread has this in its name."} />}
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
