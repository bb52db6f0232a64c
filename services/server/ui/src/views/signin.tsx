// Asks for a key. It stays in the memory of this tab.

import { useEffect, useRef, useState } from "preact/hooks";

import { Button, Field, inputValue } from "../parts/basics";

export function SignIn({ why, busy, onKey }: { why: string | undefined; busy: boolean; onKey: (key: string) => void }) {
  const [key, setKey] = useState("");
  const box = useRef<HTMLInputElement>(null);
  useEffect(() => box.current?.focus(), []);
  return (
    <main class="signin" id="main">
      <form
        onSubmit={(event) => {
          event.preventDefault();
          if (key.trim() !== "") onKey(key.trim());
        }}
      >
        <h1>Sign in</h1>
        <p>This service needs an API key. It stays in the memory of this tab, and is gone when you close or reload it.</p>
        <Field label="API key or token">
          <input ref={box} type="password" autocomplete="off" spellcheck={false} placeholder="sk_prod_…" value={key} onInput={(event) => setKey(inputValue(event))} />
        </Field>
        {why !== undefined && (
          <p class="trouble" role="alert">
            {why}
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
