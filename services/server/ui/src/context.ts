import { createContext } from "preact";
import { useContext } from "preact/hooks";

import type { ApiError } from "./api";
import type { Change, Feed } from "./feed";
import type { Rights } from "./rights";

/** What every view may need. */
export interface App {
  rights: Rights;
  /** The owner's revision; grows when anything is stored, changed or deleted. */
  revision: number;
  /** Grows when the shown data may be out of date: with the revision, and when the service responds again. */
  fresh: number;
  trouble: ApiError | null;
  /** Has a new value after a gap in the changes, when all lists must be loaded again. */
  epoch: number;
  /** Calls back with the changes from now on. */
  follow(listener: (changes: Change[]) => void): Feed;
}

export const AppContext = createContext<App | null>(null);

export function useApp(): App {
  const app = useContext(AppContext);
  if (app === null) throw new Error("a view outside of the page");
  return app;
}
