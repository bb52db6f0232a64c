// Signing in with the issuer of tokens: the authorization code flow with PKCE. Only `state` and the verifier are in
// sessionStorage, while the browser is at the issuer. The service exchanges the code.

import { ApiError, exchange } from "./api";

const PENDING = "sign-in";

const text = (bytes: Uint8Array): string => btoa(String.fromCharCode(...bytes)).replaceAll("+", "-").replaceAll("/", "_").replaceAll("=", "");
const random = (): string => text(crypto.getRandomValues(new Uint8Array(32)));

/** Whether the browser can hash the verifier: only on https and on this machine. */
export const canSignIn = (): boolean => globalThis.isSecureContext;

/** Sends the browser to the issuer. */
export async function goToIssuer(url: string): Promise<void> {
  const state = random();
  const verifier = random();
  const challenge = text(new Uint8Array(await crypto.subtle.digest("SHA-256", new TextEncoder().encode(verifier))));
  const target = new URL(url);
  // The service checks the same. A `javascript:` address would run here.
  if (!/^https?:$/.test(target.protocol)) throw new ApiError(0, "PAGE", "The issuer's address cannot be used.");
  sessionStorage.setItem(PENDING, JSON.stringify({ state, verifier }));
  target.searchParams.set("state", state);
  target.searchParams.set("code_challenge", challenge);
  target.searchParams.set("code_challenge_method", "S256");
  location.assign(target);
}

/** When the issuer has sent the browser back: the token for its code. Fails when it did not sign in. */
export async function comeBack(): Promise<string | undefined> {
  const query = new URLSearchParams(location.search);
  const code = query.get("code");
  const failure = query.get("error");
  if (code === null && failure === null) return undefined;
  // Before the request, so that neither a reload nor the history has a code.
  history.replaceState(null, "", location.pathname + location.hash);
  const pending = sessionStorage.getItem(PENDING);
  sessionStorage.removeItem(PENDING);
  const { state, verifier } = (pending === null ? {} : JSON.parse(pending)) as { state?: string; verifier?: string };
  // Anyone can make a link with a code of their own. Then the person would write into another one's memory.
  if (state === undefined || verifier === undefined || state !== query.get("state")) {
    throw new ApiError(0, "PAGE", "This sign-in was not begun in this tab. Sign in again.");
  }
  if (code === null) throw new ApiError(0, "PAGE", `The issuer did not sign you in (${failure}).`);
  return exchange(code, verifier);
}
