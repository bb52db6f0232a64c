// The owner's API keys. Only a key with the scope `manage` sees this view.

import { useState } from "preact/hooks";

import { api, type ApiError, type ApiKey } from "../api";
import { dayOf } from "../format";
import { asApiError, useLoad, useNow } from "../hooks";
import { say } from "../notices";
import { Button, Code, Empty, Field, Head, inputValue, Time, Trouble, Waiting } from "../parts/basics";

const SCOPES = [
  { scope: "read", detail: "fetch, search, list" },
  { scope: "write", detail: "store, change, restore" },
  { scope: "delete", detail: "remove for good" },
  { scope: "manage", detail: "keys of this owner" },
] as const;
type Scope = (typeof SCOPES)[number]["scope"];

export function Keys() {
  const { value, error, reload } = useLoad((signal) => api.keys(signal), "keys");
  const [made, setMade] = useState<{ key: string; name: string; notice: string | null | undefined }>();
  const [creating, setCreating] = useState(false);
  const keys = value?.result;
  return (
    <section class="view">
      <Head title="Keys">
        {!creating && (
          <Button
            tone="main"
            icon="plus"
            onClick={() => {
              setMade(undefined);
              setCreating(true);
            }}
          >
            New key
          </Button>
        )}
      </Head>
      {creating && (
        <NewKey
          onDone={(created) => {
            setCreating(false);
            setMade(created);
            if (created) reload();
          }}
        />
      )}
      {made && (
        <div class="made" role="status">
          <p>
            <strong>This is the key “{made.name}”. It is shown only now.</strong> {made.notice}
          </p>
          <Code name="API key" text={made.key} />
          <Button onClick={() => setMade(undefined)}>I have stored it</Button>
        </div>
      )}
      {error && <Trouble error={error} again={reload} />}
      {keys === undefined && !error && <Waiting rows={3} />}
      {keys && keys.length === 0 && <Empty title="There are no keys." />}
      {keys && keys.length > 0 && (
        <ul class="keys">
          {keys.map((key) => (
            <OneKey key={key.id} of={key} onChange={reload} />
          ))}
        </ul>
      )}
    </section>
  );
}

function OneKey({ of, onChange }: { of: ApiKey; onChange: () => void }) {
  const now = useNow();
  const [sure, setSure] = useState(false);
  const [error, setError] = useState<ApiError>();
  const expired = of.expires_at !== null && of.expires_at !== undefined && Date.parse(of.expires_at) <= now;
  const works = of.active && !expired;
  const deactivate = async () => {
    try {
      await api.deactivateKey(of.id);
      say(`The key “${of.name}” no longer works.`);
      onChange();
    } catch (failure) {
      setError(asApiError(failure));
    }
    setSure(false);
  };
  return (
    <li class={works ? undefined : "dead"}>
      <div class="row spread">
        <strong class="name">{of.name}</strong>
        <span class="row">
          {!works && <span class="state">{of.active ? "expired" : "deactivated"}</span>}
          {works && !sure && (
            <Button small onClick={() => setSure(true)}>
              Deactivate
            </Button>
          )}
          {works && sure && (
            <>
              <Button small tone="danger" onClick={() => void deactivate()}>
                Deactivate for good
              </Button>
              <Button small onClick={() => setSure(false)}>
                Keep it
              </Button>
            </>
          )}
        </span>
      </div>
      <p class="facts">
        {of.scopes.join(", ")}
        {of.only && ` · only ${of.only}`}
        {of.threads && ` · threads: ${of.threads.join(", ")}`}
      </p>
      <p class="facts">
        created {dayOf(of.created_at)} · {of.last_used_at ? <>last used <Time at={of.last_used_at} /></> : "never used"} ·{" "}
        {of.expires_at ? `${expired ? "expired" : "expires"} ${dayOf(of.expires_at)}` : "does not expire"} · <code>{of.id}</code>
      </p>
      {error && <Trouble error={error} />}
    </li>
  );
}

function NewKey({ onDone }: { onDone: (made?: { key: string; name: string; notice: string | null | undefined }) => void }) {
  const [name, setName] = useState("");
  const [scopes, setScopes] = useState<Scope[]>(["read", "write", "delete"]);
  const [only, setOnly] = useState<"" | "contexts" | "artifacts">("");
  const [threads, setThreads] = useState("");
  const [expires, setExpires] = useState("");
  const [error, setError] = useState<ApiError>();
  const [busy, setBusy] = useState(false);
  const create = async () => {
    setBusy(true);
    setError(undefined);
    const listed = threads.split(",").map((one) => one.trim()).filter(Boolean);
    try {
      const reply = await api.createKey({
        name,
        scopes,
        ...(only === "" ? {} : { only }),
        ...(listed.length === 0 ? {} : { threads: listed }),
        ...(expires === "" ? {} : { expires_at: new Date(`${expires}T23:59:59`).toISOString() }),
      });
      onDone({ key: reply.key, name, notice: reply.notice });
    } catch (failure) {
      setError(asApiError(failure));
      setBusy(false);
    }
  };
  return (
    <form
      class="sheet form"
      aria-label="New key"
      onSubmit={(event) => {
        event.preventDefault();
        void create();
      }}
    >
      <Field label="Name" hint="who will use it">
        <input required maxLength={100} value={name} onInput={(event) => setName(inputValue(event))} />
      </Field>
      <fieldset class="checks">
        <legend>May</legend>
        {SCOPES.map(({ scope, detail }) => (
          <label key={scope}>
            <input type="checkbox" checked={scopes.includes(scope)} onChange={(event) => setScopes(event.currentTarget.checked ? [...scopes, scope] : scopes.filter((one) => one !== scope))} />
            <span>
              {scope} <small>{detail}</small>
            </span>
          </label>
        ))}
      </fieldset>
      <div class="grid">
        <Field label="Reaches">
          <select value={only} onChange={(event) => setOnly(inputValue(event) as typeof only)}>
            <option value="">entries and artifacts</option>
            <option value="contexts">only entries</option>
            <option value="artifacts">only artifacts</option>
          </select>
        </Field>
        <Field label="Threads" hint="all, unless named; * at the end">
          <input value={threads} placeholder="billing, team-a/*" onInput={(event) => setThreads(inputValue(event))} />
        </Field>
        <Field label="Expires" hint="empty: never">
          <input type="date" value={expires} onInput={(event) => setExpires(inputValue(event))} />
        </Field>
      </div>
      {error && <Trouble error={error} />}
      <div class="row">
        <Button type="submit" tone="main" disabled={busy || name.trim() === "" || scopes.length === 0}>
          Create
        </Button>
        <Button onClick={() => onDone()}>Cancel</Button>
      </div>
    </form>
  );
}
