// One entry, wherever it is shown: its text, tags, metadata and images, and what can be done with it.

import type { ComponentChildren } from "preact";
import { useEffect, useMemo, useState } from "preact/hooks";

import { api, type ApiError, type Entry, type Hit, type Image } from "../api";
import { useApp } from "../context";
import { deleteLater, isGone, takeBack, usePending } from "../deletes";
import { bytes, count, counted } from "../format";
import { asApiError } from "../hooks";
import { isObject, pretty } from "../json";
import { tagList } from "../query";
import { to } from "../route";
import { Button, Copy, Icon, Time, Trouble } from "./basics";
import { Editor, unsaved } from "./editor";

/** How many characters of a text are shown until the user opens the rest. */
const SHOWN_CHARACTERS = 4_000;
const BLOCK_CHARACTERS = 8_000;

interface Props {
  entry: Hit | Entry;
  /** The matching part of the text with marked hits. It replaces the beginning. */
  snippet?: ComponentChildren;
  showThread?: boolean;
  /** In a short list: the approximate number of characters in the five lines that are shown. */
  brief?: number;
  /** A word about the last change of the entry. */
  mark?: string | undefined;
  highlighted?: boolean;
  /** Called after an edit. */
  onChange?: () => void;
  children?: ComponentChildren;
}

export function EntryView({ entry: given, snippet, showThread = false, brief, mark, highlighted = false, onChange, children }: Props) {
  const { rights } = useApp();
  const [whole, setWhole] = useState<Entry>();
  const [open, setOpen] = useState(false);
  const [editing, setEditing] = useState(() => (rights.contexts.write ? unsaved(given) : undefined));
  const [error, setError] = useState<ApiError>();
  // The entry that was loaded here is shown until the list has a newer version.
  const entry: Hit | Entry = whole !== undefined && whole.version >= given.version ? whole : given;
  const cut = "is_text_content_truncated" in entry && entry.is_text_content_truncated === true;
  const isClamped = !open && brief !== undefined && (entry.text_content.length > brief || entry.text_content.split("\n", 6).length > 5);
  const name = `entry ${entry.id}`;
  const leaving = usePending().find(({ id }) => id === name);
  useEffect(() => setError(undefined), [given]);
  if (isGone(name)) return null;

  const load = async (use: (entry: Entry) => void) => {
    try {
      const loaded = await api.entry(entry.id, false);
      setError(undefined);
      use(loaded);
    } catch (failure) {
      setError(asApiError(failure));
    }
  };
  // A part of the text is not shown: it is cut, or its snippet stands for it.
  const hidden = cut || (snippet !== undefined && whole === undefined && entry.text_content.length > 300);
  return (
    <article class={`entry ${entry.source}${highlighted ? " chosen" : ""}${leaving ? " leaving" : ""}${brief !== undefined && !open ? " brief" : ""}`} id={`entry-${entry.id}`} aria-label={`Entry ${entry.id}`}>
      <header>
        <div class="meta">
          <span class={`who ${entry.source}`}>{entry.source}</span>
          {showThread && (
            <a class="thread-name" href={to("threads", entry.thread_id, { at: entry.id, until: entry.created_at })}>
              {entry.thread_id}
            </a>
          )}
          <Time at={entry.created_at} />
          <a href={to("entry", entry.id)} aria-label={`Link to entry ${entry.id}`}>
            #{entry.id}
          </a>
          {entry.version > 1 && <span>version {count(entry.version)}</span>}
          {mark !== undefined && <span class={`mark ${mark}`}>{mark}</span>}
        </div>
        {leaving ? (
          <span class="tools">
            <Countdown due={leaving.due} />
            <Button small onClick={() => takeBack(name)}>
              Undo
            </Button>
          </span>
        ) : (
          <span class="tools">
            {rights.contexts.write && (
              <Button small tone="quiet" icon="edit" label={`Edit entry ${entry.id}`} onClick={() => void load(setEditing)} />
            )}
            {rights.contexts.delete && (
              <Button
                small
                tone="quiet"
                icon="trash"
                label={`Delete entry ${entry.id}`}
                onClick={() => deleteLater(name, `Entry ${entry.id}`, () => api.remove(entry.id))}
              />
            )}
          </span>
        )}
      </header>
      {error && <Trouble error={error} />}
      {editing ? (
        <Editor
          entry={editing}
          onDone={(saved) => {
            setEditing(undefined);
            if (saved) {
              setWhole(saved);
              onChange?.();
            }
          }}
        />
      ) : (
        <>
          {snippet !== undefined && whole === undefined ? <div class="text">{snippet}</div> : <Text text={entry.text_content} cut={cut} />}
          {(hidden || isClamped) && (
            <Button
              small
              tone="quiet"
              onClick={() => {
                setOpen(true);
                if (hidden) void load(setWhole);
              }}
            >
              Show the whole text
            </Button>
          )}
          {entry.summary !== "" && (
            <details class="more">
              <summary>Summary</summary>
              <p>{entry.summary}</p>
            </details>
          )}
          <div class="extras">
            <Tags tags={entry.tags} />
            <Metadata of={entry.metadata} />
          </div>
          {entry.content_type === "multimodal" && <Images key={entry.version} id={entry.id} />}
          {children}
        </>
      )}
    </article>
  );
}

export function Text({ text, cut = false }: { text: string; cut?: boolean }) {
  const [open, setOpen] = useState(false);
  const long = text.length > SHOWN_CHARACTERS;
  return (
    <>
      <div class={`text${cut ? " cut" : ""}`}>{!long ? text : open ? blocks(text) : `${text.slice(0, SHOWN_CHARACTERS)}…`}</div>
      {long && (
        <Button small tone="quiet" onClick={() => setOpen(!open)}>
          {open ? "Show less" : `Show all ${counted(text.length, "character")}`}
        </Button>
      )}
    </>
  );
}

/** A long text in blocks of whole lines, of which the browser lays out only those in view. */
function blocks(text: string) {
  const all: string[] = [];
  for (let from = 0; from < text.length; ) {
    const end = text.indexOf("\n", from + BLOCK_CHARACTERS);
    all.push(text.slice(from, end < 0 ? text.length : end));
    from = end < 0 ? text.length : end + 1;
  }
  return all.map((block, i) => (
    <div key={i} class="block">
      {block}
    </div>
  ));
}

function Countdown({ due }: { due: number }) {
  const left = () => Math.max(0, Math.ceil((due - Date.now()) / 1000));
  const [seconds, setSeconds] = useState(left);
  useEffect(() => {
    const timer = setInterval(() => setSeconds(left()), 250);
    return () => clearInterval(timer);
  }, [due]);
  return <span class="countdown">{seconds > 0 ? `deleted in ${seconds} s` : "deleting…"}</span>;
}

export function Tags({ tags }: { tags: string[] }) {
  if (tags.length === 0) return null;
  return (
    <ul class="tags" aria-label="Tags">
      {tags.map((tag) => (
        <li key={tag}>
          <a href={to("search", undefined, { kind: "filters", tags: tagList([tag]) })}>{tag}</a>
        </li>
      ))}
    </ul>
  );
}

/** Longest key, and longest value in characters of its JSON, that is shown in the row. */
const MAX_PLAIN = 120;

const isPlain = ([key, value]: [string, unknown]): boolean =>
  key.length <= MAX_PLAIN && !isObject(value) && !Array.isArray(value) && pretty(value).length <= MAX_PLAIN;

/** Up to six short plain values are shown in a row. If there are others, the whole metadata can be opened as JSON. */
export function Metadata({ of }: { of: Record<string, unknown> | null | undefined }) {
  // Metadata can have 1 MiB. A list is rendered at every change, so each entry's metadata is converted only once.
  const { fields, plain, text } = useMemo(() => {
    const fields = Object.entries(of ?? {});
    const plain = fields.filter(isPlain).slice(0, 6);
    return { fields, plain, text: plain.length < fields.length ? pretty(of) : "" };
  }, [of]);
  if (fields.length === 0) return null;
  return (
    <div class="metadata">
      {plain.length > 0 && (
        <dl>
          {plain.map(([key, value]) => (
            <div key={key}>
              <dt>{key}</dt>
              <dd>{typeof value === "string" ? value : pretty(value)}</dd>
            </div>
          ))}
        </dl>
      )}
      {plain.length < fields.length && (
        <details class="more">
          <summary>{`Metadata: ${counted(fields.length, "key")}`}</summary>
          <pre tabIndex={0} aria-label="Metadata">
            {text}
          </pre>
          <Copy text={text} />
        </details>
      )}
    </div>
  );
}

/** The images of an entry are loaded only when the user asks for them. */
function Images({ id }: { id: number }) {
  const [images, setImages] = useState<Image[]>();
  const [error, setError] = useState<ApiError>();
  const load = async () => {
    try {
      const loaded = (await api.entry(id, true)).images ?? [];
      setError(undefined);
      setImages(loaded);
    } catch (failure) {
      setError(asApiError(failure));
    }
  };
  if (error) return <Trouble error={error} again={() => void load()} />;
  if (images === undefined) {
    return (
      <button type="button" class="images unloaded" onClick={() => void load()}>
        <Icon name="image" />
        <span>Show the images</span>
      </button>
    );
  }
  return (
    <div class="images">
      {images.map((image, i) => (
        <OneImage key={i} image={image} name={`Image ${i + 1} of entry ${id}`} />
      ))}
    </div>
  );
}

function OneImage({ image, name }: { image: Image; name: string }) {
  const [url, setUrl] = useState<string>();
  const [broken, setBroken] = useState(false);
  const type = image.mime_type ?? "image/png";
  const size = Math.floor((image.data.replace(/=+$/, "").length * 3) / 4);
  useEffect(() => {
    // An `<img>` runs no script, not even that of an SVG.
    const made = URL.createObjectURL(new Blob([decoded(image.data)], { type: /^image\//.test(type) ? type : "image/png" }));
    setUrl(made);
    return () => URL.revokeObjectURL(made);
  }, [image]);
  return (
    <figure>
      {broken ? <p class="broken">The browser cannot show this image.</p> : url !== undefined && <img src={url} alt={name} onError={() => setBroken(true)} />}
      <figcaption>
        {type} · {bytes(size)}
      </figcaption>
      <Metadata of={image.metadata} />
    </figure>
  );
}

function decoded(base64: string): Uint8Array<ArrayBuffer> {
  try {
    const text = atob(base64);
    const data = new Uint8Array(text.length);
    for (let i = 0; i < text.length; i += 1) data[i] = text.charCodeAt(i);
    return data;
  } catch {
    return new Uint8Array();
  }
}
