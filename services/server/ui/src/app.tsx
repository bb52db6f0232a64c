// The page as a whole: signing in, the views, the state of the connection, messages.

import { useCallback, useEffect, useMemo, useRef, useState } from "preact/hooks";

import { ApiError, begin, hasKey, onRefused, PAGE_CLOSED, session as opened, setKey, UNREACHABLE } from "./api";
import { type App, AppContext } from "./context";
import { takeAllBack, takeBack, usePending } from "./deletes";
import { type Change, follow } from "./feed";
import { asApiError } from "./hooks";
import { finishSignIn } from "./issuer";
import { dismiss, useNotices } from "./notices";
import { Button, Icon } from "./parts/basics";
import { forgetDrafts } from "./parts/editor";
import { probeRights, type Rights } from "./rights";
import { type Route, to, useRoute, type View } from "./route";
import { Activity } from "./views/activity";
import { Artifacts } from "./views/artifacts";
import { Closed } from "./views/closed";
import { Connect } from "./views/connect";
import { EntryPage } from "./views/entry";
import { Health } from "./views/health";
import { Keys } from "./views/keys";
import { Search } from "./views/search";
import { SignIn } from "./views/signin";
import { Threads } from "./views/threads";

const TITLES: Record<View | "entry", string> = {
  activity: "Activity",
  threads: "Threads",
  search: "Search",
  artifacts: "Artifacts",
  health: "Health",
  connect: "Connect",
  keys: "Keys",
  entry: "Entry",
};

type Session = { state: "connecting"; trouble?: ApiError } | { state: "closed" } | { state: "key"; why?: string; busy: boolean } | { state: "open"; rights: Rights };

const RETRY_MS = 3_000;
/** Interval at which views load again while changes arrive. */
const REFRESH_MS = 1_000;

export function Page() {
  const [session, setSession] = useState<Session>({ state: "connecting" });

  const open = useCallback(async () => {
    try {
      await begin();
      try {
        const token = await finishSignIn();
        if (token !== undefined) setKey(token);
      } catch (error) {
        return setSession({ state: "key", busy: false, why: asApiError(error).message });
      }
      setSession({ state: "open", rights: await probeRights() });
    } catch (error) {
      const apiError = asApiError(error);
      if (apiError.status !== 401) setSession({ state: "connecting", trouble: apiError });
    }
  }, []);
  useEffect(() => {
    onRefused((reason) => {
      const had = hasKey();
      setKey(undefined);
      takeAllBack();
      if (reason === PAGE_CLOSED) return setSession({ state: "closed" });
      setSession({ state: "key", busy: false, ...(had ? { why: "This key or token is not accepted: it is wrong, expired or deactivated." } : {}) });
    });
    void open();
  }, []);
  const failed = session.state === "connecting" ? session.trouble : undefined;
  useEffect(() => {
    if (failed === undefined) return;
    const timer = setTimeout(() => void open(), RETRY_MS);
    return () => clearTimeout(timer);
  }, [failed]);

  if (session.state === "connecting") {
    return (
      <div class="shell">
        <header class="side">
          <Brand />
        </header>
        <main id="main">{failed && <ConnectionLine trouble={failed} />}</main>
      </div>
    );
  }
  if (session.state === "closed") return <Closed />;
  if (session.state === "key") {
    const enter = (key: string) => {
      // A header cannot contain every character: the request would never be sent.
      if (/[^!-~]/.test(key)) return setSession({ state: "key", busy: false, why: "This is not a whole key or token: it contains a space or a character that is not ASCII." });
      setKey(key);
      setSession({ state: "key", busy: true });
      void open();
    };
    return <SignIn key={session.why ?? ""} why={session.why} busy={session.busy} onKey={enter} />;
  }
  const leave = () => {
    setKey(undefined);
    takeAllBack();
    forgetDrafts();
    setSession({ state: "key", busy: false });
  };
  return <Shell rights={session.rights} leave={leave} />;
}

function Brand() {
  return (
    <p class="brand">
      <svg viewBox="0 0 32 32" aria-hidden="true">
        <rect width="32" height="32" rx="8" />
        <path d="M9 11h14M9 16h9M9 21h12" />
      </svg>
      <span>Context</span>
    </p>
  );
}

function viewsFor(rights: Rights): View[] {
  const views: View[] = [];
  if (rights.contexts.read) views.push("activity", "threads", "search");
  if (rights.artifacts.read) views.push("artifacts");
  views.push("health", "connect");
  if (rights.manage) views.push("keys");
  return views;
}

function Shell({ rights, leave }: { rights: Rights; leave: () => void }) {
  const requested = useRoute();
  const views = viewsFor(rights);
  const wanted = requested.view === "entry" ? "threads" : requested.view;
  const allowed = views.includes(wanted);
  const route: Route = allowed ? requested : { view: views[0] ?? "health", id: undefined, query: new URLSearchParams() };
  const { app, ready } = useChangeStream(rights);
  const main = useRef<HTMLElement>(null);

  // A new view begins at its heading, also for a screen reader.
  const first = useRef(true);
  const viewKey = `${route.view} ${route.view === "search" ? "" : (route.id ?? "")}`;
  useEffect(() => {
    const title = route.id === undefined ? TITLES[route.view] : `${route.id.slice(0, 60)} · ${TITLES[route.view]}`;
    document.title = `${title} · Context`;
    if (first.current) {
      first.current = false;
      return;
    }
    scrollTo({ top: 0 });
    const headings = main.current?.querySelectorAll<HTMLElement>("h1") ?? [];
    [...headings].at(-1)?.focus({ preventScroll: true });
  }, [viewKey]);

  return (
    <AppContext.Provider value={app}>
      <div class="shell">
        <button type="button" class="skip" onClick={() => main.current?.focus()}>
          Skip to the content
        </button>
        <header class="side">
          <Brand />
          <nav aria-label="Views">
            {views.map((view) => (
              <a key={view} href={to(view)} aria-current={wanted === view && allowed ? "page" : undefined}>
                <Icon name={view} />
                <span>{TITLES[view]}</span>
              </a>
            ))}
          </nav>
          <div class="foot">
            {(rights.contexts.read || rights.artifacts.read) && (
              <p class={`live ${app.trouble ? "down" : "up"}`} title={app.revision < 0 ? undefined : `Revision ${app.revision}`}>
                <span class="dot" aria-hidden="true" />
                {app.trouble ? "not connected" : ready ? "live" : "connecting"}
              </p>
            )}
            {hasKey() && (
              <Button small tone="quiet" icon="out" onClick={leave}>
                Sign out
              </Button>
            )}
          </div>
        </header>
        <main ref={main} id="main" tabIndex={-1}>
          {app.trouble && <ConnectionLine trouble={app.trouble} />}
          {ready || app.trouble ? <CurrentView route={route} /> : null}
        </main>
        <Messages />
      </div>
    </AppContext.Provider>
  );
}

function CurrentView({ route }: { route: Route }) {
  switch (route.view) {
    case "activity":
      return <Activity route={route} />;
    case "threads":
      return <Threads route={route} />;
    case "entry":
      return <EntryPage id={Number(route.id)} />;
    case "search":
      return <Search route={route} />;
    case "artifacts":
      return <Artifacts route={route} />;
    case "health":
      return <Health />;
    case "connect":
      return <Connect />;
    case "keys":
      return <Keys />;
  }
}

/** Follows the one stream of changes of the whole page. `ready`: the stream has started, or the key may read nothing, so there is no stream. */
function useChangeStream(rights: Rights): { app: App; ready: boolean } {
  const [state, setState] = useState({ revision: -1, fresh: 0, epoch: 0 });
  const [trouble, setTrouble] = useState<ApiError | null>(null);
  const listeners = useRef(new Set<(changes: Change[]) => void>()).current;

  useEffect(() => {
    if (!rights.contexts.read && !rights.artifacts.read) {
      setState({ revision: 0, fresh: 1, epoch: 1 });
      return;
    }
    let revision = -1;
    let shown = -1;
    let timer: ReturnType<typeof setTimeout> | undefined;
    // The first change reloads the views at once, further ones at most once per interval.
    const refresh = () => {
      if (timer !== undefined || revision === shown) return;
      shown = revision;
      setState((old) => ({ ...old, revision, fresh: old.fresh + 1 }));
      timer = setTimeout(() => {
        timer = undefined;
        refresh();
      }, REFRESH_MS);
    };
    const feed = follow({
      start: () => setState((old) => ({ ...old, epoch: old.epoch + 1 })),
      changes: (changes) => listeners.forEach((listener) => listener(changes)),
      revision(now) {
        revision = now;
        refresh();
      },
      trouble: (error) =>
        setTrouble((old) => {
          if (old !== null && error === null) setState((state) => ({ ...state, fresh: state.fresh + 1 }));
          return error;
        }),
    });
    return () => {
      feed.close();
      clearTimeout(timer);
    };
  }, [rights]);

  const app = useMemo<App>(
    () => ({
      rights,
      ...state,
      trouble,
      follow(listener) {
        listeners.add(listener);
        return { close: () => void listeners.delete(listener) };
      },
    }),
    [rights, state, trouble],
  );
  return { app, ready: state.epoch > 0 };
}

/** One line that says what is wrong. It disappears when the connection works again. */
function ConnectionLine({ trouble }: { trouble: ApiError }) {
  return (
    <p class="trouble line" role="status">
      <Icon name="warn" />
      <span>
        {trouble.reason === UNREACHABLE ? "The service does not respond." : trouble.message.replace(/[^.?!]$/, "$&.")} Trying again…
        {opened() && (
          <>
            {" "}
            If this lasts, open the page again: <code>context-gateway open</code>
          </>
        )}
      </span>
    </p>
  );
}

function Messages() {
  const notices = useNotices();
  const pending = usePending();
  return (
    <div class="messages" aria-live="polite">
      {pending.map(({ id, label }) => (
        <div key={id} class="message">
          <span>
            <bdi>{label}</bdi> will be deleted.
          </span>
          <Button small onClick={() => takeBack(id)}>
            Undo
          </Button>
        </div>
      ))}
      {notices.map(({ number, text, tone }) => (
        <div key={number} class={`message ${tone}`}>
          <span>{text}</span>
          <Button small tone="quiet" icon="close" label="Dismiss" onClick={() => dismiss(number)} />
        </div>
      ))}
    </div>
  );
}
