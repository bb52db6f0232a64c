// The form that changes an entry. No change is lost: if the entry changed meanwhile, both texts are shown.

import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";

import { api, ApiError, type Entry, type Hit } from "../api";
import { asApiError } from "../hooks";
import { isObject, pretty } from "../json";
import { say } from "../notices";
import { tagList, tagsIn } from "../query";
import { Button, Field, inputValue, Trouble } from "./basics";

interface Draft {
  text: string;
  tags: string;
  metadata: string;
}

// Unsaved changes outlive the form: another view may be opened, a list may drop the entry, or the key may expire.
const drafts = new Map<number, { base: Entry; draft: Draft }>();

function kept({ id, created_at }: Hit | Entry) {
  const found = drafts.get(id);
  // With another key, the id may be that of another entry.
  return found?.base.created_at === created_at ? found : undefined;
}

/** The entry to which unsaved changes were made. */
export const unsaved = (entry: Hit | Entry): Entry | undefined => kept(entry)?.base;
export const isUnsaved = (id: number): boolean => drafts.has(id);
export const forgetDrafts = (): void => drafts.clear();

/** The text as a `<textarea>` returns it. */
const withLineFeeds = (text: string): string => text.replace(/\r\n?/g, "\n");

const draftOf = (entry: Entry): Draft => ({
  text: withLineFeeds(entry.text_content),
  tags: tagList(entry.tags),
  metadata: pretty(entry.metadata),
});

export function Editor({ entry, onDone }: { entry: Entry; onDone: (saved?: Entry) => void }) {
  const [base, setBase] = useState(() => unsaved(entry) ?? entry);
  const [draft, setDraft] = useState(() => kept(entry)?.draft ?? draftOf(entry));
  const [other, setOther] = useState<Entry>();
  const [error, setError] = useState<ApiError>();
  const [busy, setBusy] = useState(false);
  const area = useRef<HTMLTextAreaElement>(null);
  // A form that is shown again does not take the focus.
  useEffect(() => {
    if (unsaved(entry) === undefined) area.current?.focus();
  }, []);

  const old = draftOf(base);
  const changed = draft.text !== old.text || draft.tags !== old.tags || draft.metadata !== old.metadata;
  useLayoutEffect(() => {
    if (changed) drafts.set(entry.id, { base, draft });
    else drafts.delete(entry.id);
  }, [base, draft]);
  const end = (saved?: Entry) => {
    drafts.delete(entry.id);
    onDone(saved);
  };

  const save = async (onto: Entry) => {
    const body = changes(base, draft);
    if (typeof body !== "string") {
      setError(body);
      return;
    }
    if (body === "{}") {
      end(onto);
      return;
    }
    setBusy(true);
    setError(undefined);
    try {
      await api.update(entry.id, onto.version, body);
      say(`Entry ${entry.id} is saved.`);
      // If the entry cannot be loaded now, the change is stored nevertheless.
      end(await api.entry(entry.id, false).catch(() => undefined));
    } catch (failure) {
      const problem = asApiError(failure);
      if (problem.reason === "VERSION_MISMATCH") await conflict();
      else setError(problem);
      setBusy(false);
    }
  };
  const conflict = async () => {
    try {
      setOther(await api.entry(entry.id, false));
    } catch (failure) {
      setError(asApiError(failure));
    }
  };

  return (
    <form
      class="editor"
      aria-label={`Edit entry ${entry.id}`}
      onSubmit={(event) => {
        event.preventDefault();
        if (other === undefined && !busy) void save(base);
      }}
      onKeyDown={(event) => {
        if (event.key === "Escape" && !changed) end();
      }}
    >
      {other && (
        <div class="conflict" role="alert">
          <p>
            <strong>Someone changed this entry while you edited it.</strong> It is now version {other.version}. Nothing of yours is
            lost.
          </p>
          <div class="both">
            <div>
              <h2>Yours</h2>
              <pre tabIndex={0} aria-label="Your text">
                {asText(draft, draft, old)}
              </pre>
            </div>
            <div>
              <h2>Stored now</h2>
              <pre tabIndex={0} aria-label="The stored text">
                {asText(draftOf(other), draft, old)}
              </pre>
            </div>
          </div>
          <div class="row">
            <Button
              onClick={() => {
                setBase(other);
                setDraft(draftOf(other));
                setOther(undefined);
              }}
            >
              Start from theirs
            </Button>
            <Button tone="main" disabled={busy} onClick={() => void save(other)}>
              Replace theirs with mine
            </Button>
          </div>
        </div>
      )}
      <Field label="Text">
        <textarea ref={area} class="text" rows={Math.min(24, Math.max(4, draft.text.split("\n").length + 1))} value={draft.text} onInput={(event) => setDraft({ ...draft, text: inputValue(event) })} />
      </Field>
      <Field label="Tags" hint="with commas between them; one that has a comma in quotes">
        <input value={draft.tags} onInput={(event) => setDraft({ ...draft, tags: inputValue(event) })} />
      </Field>
      <Field label="Metadata" hint="a JSON object">
        <textarea class="json" rows={Math.min(12, draft.metadata.split("\n").length + 1)} spellcheck={false} value={draft.metadata} onInput={(event) => setDraft({ ...draft, metadata: inputValue(event) })} />
      </Field>
      {error && <Trouble error={error} />}
      <div class="row">
        {!other && (
          <Button type="submit" tone="main" disabled={busy || !changed}>
            Save
          </Button>
        )}
        <Button onClick={() => end()}>Cancel</Button>
        <small>Saved only if it is still version {(other ?? base).version}.</small>
      </div>
    </form>
  );
}

/** A draft as text. Tags and metadata are included only if they were edited, because only then are they saved. */
function asText(shown: Draft, mine: Draft, old: Draft): string {
  const parts = [shown.text];
  if (mine.tags !== old.tags) parts.push(`Tags: ${shown.tags}`);
  if (mine.metadata !== old.metadata) parts.push(`Metadata: ${shown.metadata}`);
  return parts.join("\n\n");
}

/** The body of the update: only edited fields. Metadata is sent as it was typed, so that no number changes. */
function changes(base: Entry, draft: Draft): string | ApiError {
  const old = draftOf(base);
  const fields: string[] = [];
  if (draft.text !== old.text) {
    const hasReturns = base.text_content !== old.text && base.text_content === old.text.replaceAll("\n", "\r\n");
    fields.push(`"text":${JSON.stringify(hasReturns ? draft.text.replaceAll("\n", "\r\n") : draft.text)}`);
  }
  if (draft.tags !== old.tags) fields.push(`"tags":${JSON.stringify(tagsIn(draft.tags))}`);
  if (draft.metadata !== old.metadata) {
    const text = draft.metadata.trim() === "" ? "{}" : draft.metadata;
    try {
      if (!isObject(JSON.parse(text))) return new ApiError(0, "PAGE", "Metadata must be a JSON object: { … }");
    } catch (error) {
      return new ApiError(0, "PAGE", `Metadata is not JSON: ${error instanceof Error ? error.message : ""}`);
    }
    fields.push(`"metadata":${text}`);
  }
  return `{${fields.join(",")}}`;
}
