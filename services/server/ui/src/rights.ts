// Finds out what the caller may do. No API call returns that, so each kind of call is tried once: the service checks the
// scope before it reads the rest of the request.

import { api, ApiError } from "./api";

export interface Rights {
  /** Whether requests need a key. */
  keyed: boolean;
  contexts: { read: boolean; write: boolean; delete: boolean };
  artifacts: { read: boolean; write: boolean; delete: boolean };
  manage: boolean;
}

/** Throws an error with status 401 if the service requires a key or rejects the given one. */
export async function probeRights(): Promise<Rights> {
  const all = { read: true, write: true, delete: true };
  // Only without authentication do the statistics contain metrics of the database's connections. Everything is allowed
  // then, except managing keys over TCP.
  let keyed = true;
  const threads = await allowed(api.statistics().then((statistics) => void (keyed = statistics.connection_metrics === null)));
  if (!keyed) return { keyed, contexts: all, artifacts: all, manage: false };
  const [keys, artifacts, store, remove, create, destroy] = await Promise.all([
    outcome(api.keys()),
    allowed(api.artifacts(1, undefined)),
    allowed(api.probes.storeContext()),
    allowed(api.probes.deleteContext()),
    allowed(api.probes.createArtifact()),
    allowed(api.probes.deleteArtifact()),
  ]);
  return {
    keyed,
    contexts: { read: threads, write: threads && store, delete: threads && remove },
    artifacts: { read: artifacts, write: artifacts && create, delete: artifacts && destroy },
    manage: keys === "OK",
  };
}

async function allowed(attempt: Promise<unknown>): Promise<boolean> {
  return (await outcome(attempt)) !== "SCOPE_MISSING";
}

async function outcome(attempt: Promise<unknown>): Promise<string> {
  try {
    await attempt;
    return "OK";
  } catch (error) {
    if (error instanceof ApiError && error.status >= 400 && error.status < 500 && error.status !== 401 && error.status !== 429) {
      return error.reason;
    }
    throw error;
  }
}
