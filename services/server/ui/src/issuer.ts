// Signing in with the issuer of tokens: the authorization code flow with PKCE. Only `state` and the verifier are in
// sessionStorage, while the browser is at the issuer. The service exchanges the code.

import { address, ApiError, exchange } from "./api";

const PENDING = "sign-in";
/** Longer error codes of the issuer are cut. Those of RFC 6749 have at most 25 characters. */
const MAX_ERROR = 60;

const text = (bytes: Uint8Array): string => btoa(String.fromCharCode(...bytes)).replaceAll("+", "-").replaceAll("/", "_").replaceAll("=", "");
const random = (): string => text(crypto.getRandomValues(new Uint8Array(32)));
const failed = (message: string): ApiError => new ApiError(0, "PAGE", message);

/** Whether the browser can hash the verifier: only on https and on this machine. */
export const canSignIn = (): boolean => globalThis.isSecureContext;

/** The address to which the issuer sends the browser back, if it differs from this page's address. */
export function elsewhere(url: string): string | undefined {
  const redirect = new URL(url).searchParams.get("redirect_uri") ?? "";
  const page = address(".");
  page.search = "";
  return new URL(redirect).href === page.href ? undefined : redirect;
}

/** Sends the browser to the issuer. */
export async function goToIssuer(url: string): Promise<void> {
  const state = random();
  const verifier = random();
  const hash = text(new Uint8Array(await crypto.subtle.digest("SHA-256", new TextEncoder().encode(verifier))));
  const target = new URL(url);
  // The service checks this too. A `javascript:` address would run as a script of this page.
  if (!/^https?:$/.test(target.protocol)) throw failed("The issuer's address cannot be used.");
  sessionStorage.setItem(PENDING, JSON.stringify({ state, verifier }));
  target.searchParams.set("state", state);
  target.searchParams.set("code_challenge", hash);
  // The service compares the nonce with the ID token. Only this tab has the verifier with this hash.
  target.searchParams.set("nonce", hash);
  location.assign(target);
}

/** What the page stored before it sent the browser to the issuer. If site data is blocked, the access throws. */
function takePending(): string | null {
  try {
    const pending = sessionStorage.getItem(PENDING);
    sessionStorage.removeItem(PENDING);
    return pending;
  } catch {
    return null;
  }
}

/**
 * Returns the token for the code with which the issuer sent the browser back; undefined if the browser does not come
 * from the issuer. Throws if the sign-in failed.
 */
export async function finishSignIn(): Promise<string | undefined> {
  const pending = takePending();
  const query = new URLSearchParams(location.search);
  const code = query.get("code");
  const error = query.get("error");
  if (code === null && error === null) return undefined;
  // Removed before the request, so that neither a reload nor the history contains a code.
  history.replaceState(null, "", location.pathname + location.hash);
  const { state, verifier } = (pending === null ? {} : JSON.parse(pending)) as { state?: string; verifier?: string };
  // Anyone can send a link with their own code. A user who follows it would write into the sender's memory.
  if (state === undefined || verifier === undefined || state !== query.get("state")) {
    throw failed("This sign-in was not begun in this tab. Sign in again.");
  }
  if (code === null) throw failed(`The issuer did not sign you in (${error?.slice(0, MAX_ERROR)}).`);
  return exchange(code, verifier);
}
