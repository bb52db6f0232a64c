import { createContext } from "preact";
import { useContext } from "preact/hooks";

import type { ApiError } from "./api";
import type { Feed, Listener } from "./feed";
import type { Rights } from "./rights";

/** What every view may need. */
export interface App {
  rights: Rights;
  /** The owner's revision; grows when anything is stored, changed or deleted. */
  revision: number;
  /** Grows when what is shown may be out of date: with the revision, and when the service answers again. */
  fresh: number;
  trouble: ApiError | null;
  /** Follows the entries. */
  follow(listener: Pick<Listener, "snapshot" | "changes">): Feed;
}

export const AppContext = createContext<App | null>(null);

export function useApp(): App {
  const app = useContext(AppContext);
  if (app === null) throw new Error("a view outside of the page");
  return app;
}
