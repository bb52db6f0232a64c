// The connection that the adapters of agent frameworks share.

import { randomUUID } from "node:crypto";
import { setTimeout as sleep } from "node:timers/promises";

import createClient, { type Client } from "openapi-fetch";

import type { components, paths } from "./openapi.d.ts";

export type Service = Client<paths>;
export type Problem = components["schemas"]["Problem"];

const ATTEMPTS = 5;
const TIMEOUT_MS = 30_000; // For a call with all its retries.

/** A context service, with this API key. An empty one counts as none. */
export function connect(baseUrl = "http://127.0.0.1:7420", key = process.env["CONTEXT_API_KEY"]): Service {
  const headers = key ? { Authorization: `Bearer ${key}` } : {};
  return createClient<paths>({ baseUrl, headers, fetch: retried });
}

/** The headers of a call that changes something: a retry does not repeat the change. */
export function once(): { header: { "Idempotency-Key": string } } {
  return { header: { "Idempotency-Key": randomUUID() } };
}

/** An error of the service, or of a proxy before it. `reason` is stable; a proxy's is `HTTP_` and the status. */
export class Refused extends Error {
  constructor(readonly reason: string, message: string) {
    super(`${reason}: ${message}`);
  }
}

/** The body of a successful reply. Any other reply is thrown as `Refused`. */
export function done<Body>(reply: { data?: Body; error?: Problem; response: Response }): Body {
  const { ok, status, statusText } = reply.response;
  // The error of a proxy may be empty or HTML.
  if (!ok) throw new Refused(reply.error?.reason ?? `HTTP_${status}`, reply.error?.detail ?? statusText);
  return reply.data as Body;
}

async function retried(request: Request): Promise<Response> {
  const { pathname } = new URL(request.url);
  // A lost connection, 502, 504 and a 503 without Retry-After do not tell whether the service has done what was asked.
  const isRepeatable = request.method === "GET" || request.headers.has("Idempotency-Key") || /\/v1\/contexts\/search(\/|$)/.test(pathname);
  const isBusy = ({ status, headers }: Response) =>
    status === 429 || (isRepeatable ? [502, 503, 504].includes(status) : status === 503 && headers.has("Retry-After"));
  // A watch has no end.
  const signal = pathname.endsWith("/v1/watch") ? request.signal : AbortSignal.any([request.signal, AbortSignal.timeout(TIMEOUT_MS)]);
  for (let attempt = 1; ; attempt++) {
    try {
      const response = await fetch(request.clone(), { signal });
      if (attempt === ATTEMPTS || !isBusy(response)) return response;
      await response.body?.cancel();
    } catch (error) {
      // fetch reports a lost connection as a TypeError.
      if (attempt === ATTEMPTS || !isRepeatable || !(error instanceof TypeError)) throw error;
    }
    await sleep(200 * 2 ** attempt * Math.random(), undefined, { signal });
  }
}
