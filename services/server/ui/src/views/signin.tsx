// Asks for a key, or lets the issuer of tokens sign the person in. The key or token stays in the memory of this tab.

import { useEffect, useRef, useState } from "preact/hooks";

import { issuer } from "../api";
import { asApiError, useLoad } from "../hooks";
import { canSignIn, goToIssuer } from "../issuer";
import { Button, Field, inputValue } from "../parts/basics";

export function SignIn({ why, busy, onKey }: { why: string | undefined; busy: boolean; onKey: (key: string) => void }) {
  const [key, setKey] = useState("");
  const box = useRef<HTMLInputElement>(null);
  useEffect(() => box.current?.focus(), []);
  const offered = useLoad(issuer, "issuer");
  const [failed, setFailed] = useState<string>();
  const trouble = failed ?? why ?? offered.error?.message;
  const url = offered.value;
  return (
    <main class="signin" id="main">
      <form
        onSubmit={(event) => {
          event.preventDefault();
          if (key.trim() !== "") onKey(key.trim());
        }}
      >
        <h1>Sign in</h1>
        {typeof url === "string" && canSignIn() && (
          <>
            <Button tone="main" disabled={busy} onClick={() => void goToIssuer(url).catch((error) => setFailed(asApiError(error).message))}>
              {`Sign in with ${new URL(url).host}`}
            </Button>
            <p class="note">Or with a key:</p>
          </>
        )}
        <p>
          {typeof url === "string" ? "An API key or token" : "This service needs an API key. It"} stays in the memory of this tab, and is gone when you close or reload it.
        </p>
        {typeof url === "string" && !canSignIn() && <p class="note">The issuer can sign you in only on a page with https.</p>}
        <Field label="API key or token">
          <input ref={box} type="password" autocomplete="off" spellcheck={false} placeholder="sk_prod_…" value={key} onInput={(event) => setKey(inputValue(event))} />
        </Field>
        {trouble !== undefined && (
          <p class="trouble" role="alert">
            {trouble}
          </p>
        )}
        <Button type="submit" tone="main" disabled={busy || key.trim() === ""}>
          {busy ? "Signing in…" : "Sign in"}
        </Button>
        <p class="note">
          The first start with AUTH printed one. Another one: <code>context-service keys create NAME</code>
        </p>
      </form>
    </main>
  );
}
