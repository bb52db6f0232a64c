// The connection that the adapters of agent frameworks share.

import { randomUUID } from "node:crypto";
import { setTimeout as sleep } from "node:timers/promises";

import createClient, { type Client } from "openapi-fetch";

import type { components, paths } from "./openapi.d.ts";

export type Service = Client<paths>;
export type Problem = components["schemas"]["Problem"];

const ATTEMPTS = 5;

/** A context service, with this API key. */
export function connect(baseUrl = "http://127.0.0.1:7420", key = process.env["CONTEXT_API_KEY"]): Service {
  const headers = key === undefined ? {} : { Authorization: `Bearer ${key}` };
  return createClient<paths>({ baseUrl, headers, fetch: retried });
}

/** The headers of a call that changes something: a retry does not repeat the change. */
export function once(): { header: { "Idempotency-Key": string } } {
  return { header: { "Idempotency-Key": randomUUID() } };
}

/** An error of the service. `reason` is stable. */
export class Refused extends Error {
  constructor(readonly reason: string, message: string) {
    super(`${reason}: ${message}`);
  }
}

/** The body of a successful reply. Any other reply is thrown as `Refused`. */
export function done<Body>(reply: { data?: Body; error?: Problem }): Body {
  if (reply.error !== undefined) throw new Refused(reply.error.reason, reply.error.detail);
  return reply.data as Body;
}

async function retried(request: Request): Promise<Response> {
  for (let attempt = 1; ; attempt++) {
    try {
      const response = await fetch(request.clone());
      if (attempt === ATTEMPTS || (response.status !== 503 && response.status !== 429)) return response;
    } catch (error) {
      // fetch reports a lost connection as a TypeError.
      if (attempt === ATTEMPTS || !(error instanceof TypeError)) throw error;
    }
    await sleep(200 * 2 ** attempt * Math.random());
  }
}
