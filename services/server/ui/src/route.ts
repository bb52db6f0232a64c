// The current view: the part of the URL after #, because only that works below every path of a proxy.

import { useEffect, useState } from "preact/hooks";

export const VIEWS = ["activity", "threads", "search", "artifacts", "health", "connect", "keys"] as const;
export type View = (typeof VIEWS)[number];

export interface Route {
  view: View | "entry";
  id: string | undefined;
  query: URLSearchParams;
}

export function parse(hash: string): Route {
  const text = hash.replace(/^#?\/?/, "");
  const cut = text.indexOf("?");
  const [view = "", ...rest] = (cut < 0 ? text : text.slice(0, cut)).split("/");
  const id = rest.length > 0 ? decoded(rest.join("/")) : undefined;
  const found = view === "entry" && /^[1-9]\d*$/.test(id ?? "") ? view : VIEWS.find((name) => name === view);
  return { view: found ?? "activity", id: id === "" ? undefined : id, query: new URLSearchParams(cut < 0 ? "" : text.slice(cut + 1)) };
}

/** The link to a view. */
export function to(view: View | "entry", id?: string | number, query?: Record<string, string | number | undefined>): string {
  const path = `#/${view}${id === undefined ? "" : `/${encoded(String(id))}`}`;
  const given = Object.entries(query ?? {}).filter(([, value]) => value !== undefined && value !== "");
  if (given.length === 0) return path;
  return `${path}?${new URLSearchParams(given.map(([name, value]) => [name, String(value)]))}`;
}

// A keyboard can produce half of a surrogate pair, which encodeURIComponent does not accept.
function encoded(text: string): string {
  return encodeURIComponent(text.replace(/\p{Surrogate}/gu, "\uFFFD"));
}

function decoded(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

export function useRoute(): Route {
  const [hash, setHash] = useState(location.hash);
  useEffect(() => {
    const changed = () => setHash(location.hash);
    addEventListener("hashchange", changed);
    return () => removeEventListener("hashchange", changed);
  }, []);
  return parse(hash);
}

/** Changes the URL without a step in the history. */
export function replace(link: string): void {
  if (link === location.hash) return;
  history.replaceState(null, "", link);
  dispatchEvent(new Event("hashchange"));
}
