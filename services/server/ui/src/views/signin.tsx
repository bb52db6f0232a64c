// Asks for a key, or lets the issuer of tokens sign the person in. The key or token stays in the memory of this tab.

import { useEffect, useRef, useState } from "preact/hooks";

import { issuer } from "../api";
import { asApiError, useLoad } from "../hooks";
import { canSignIn, elsewhere, goToIssuer } from "../issuer";
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
        {typeof url === "string" && <WithIssuer url={url} busy={busy} failed={setFailed} />}
        <p>
          {typeof url === "string" ? "Or use an API key or token." : "This service needs an API key."} It stays in the memory of this tab, and is gone when you close or reload
          it.
        </p>
        <Field label="API key or token">
          <input ref={box} type="password" autocomplete="off" spellcheck={false} placeholder="sk_prod_…" value={key} onInput={(event) => setKey(inputValue(event))} />
        </Field>
        {trouble !== undefined && (
          <p class="trouble" role="alert">
            {trouble}
          </p>
        )}
        <Button type="submit" tone={typeof url === "string" ? "plain" : "main"} disabled={busy || key.trim() === ""}>
          {busy ? "Signing in…" : typeof url === "string" ? "Sign in with the key" : "Sign in"}
        </Button>
        <p class="note">
          The first start with AUTH=keys printed a key. To create another one: <code>context-service keys create NAME</code>
        </p>
      </form>
    </main>
  );
}

function WithIssuer({ url, busy, failed }: { url: string; busy: boolean; failed: (why: string) => void }) {
  const page = elsewhere(url);
  if (page !== undefined) {
    return (
      <p>
        The issuer signs people in on the page at <a href={page}>{page}</a>.
      </p>
    );
  }
  if (!canSignIn()) return <p class="note">The issuer can sign you in only on a page with https.</p>;
  return (
    <Button tone="main" disabled={busy} onClick={() => void goToIssuer(url).catch((error) => failed(asApiError(error).message))}>
      {`Sign in with ${new URL(url).host}`}
    </Button>
  );
}
