// One box, four kinds of search, and why each result was found.

import { useEffect, useMemo, useRef, useState } from "preact/hooks";

import { api, type Found, type Hit, type Operator, type Statistics } from "../api";
import { curl, grpcurl, mcp } from "../commands";
import { useApp } from "../context";
import { count, counted } from "../format";
import { asApiError, useLoad } from "../hooks";
import { Bar, Button, Choices, Code, Empty, Field, Head, inputValue, Trouble, Waiting } from "../parts/basics";
import { EntryView } from "../parts/entry";
import { type Condition, filterCount, FTS_MODES, KINDS, link, OPERATORS, type Query, read, request, tagList, takesValue, written } from "../query";
import type { Route } from "../route";
import { pieces } from "../snippet";
import { Missing } from "./missing";

const PAGE = 20;

export function Search({ route }: { route: Route }) {
  const { rights, fresh } = useApp();
  const requested = useMemo(() => read(route.query), [route.query.toString()]);
  const [query, setQuery] = useState(requested);
  const [open, setOpen] = useState(filterCount(requested) > 0);
  const box = useRef<HTMLInputElement>(null);
  const statistics = useLoad((signal) => api.statistics(signal), "statistics");
  const threads = useLoad((signal) => api.threads(200, 0, signal), "threads", fresh);
  useEffect(() => {
    setQuery(requested);
    if (filterCount(requested) > 0) setOpen(true);
  }, [requested]);

  const ready = requested.kind === "filters" || requested.text.trim() !== "";
  const body = request(requested);
  const identity = ready ? JSON.stringify([requested.kind, body]) : "";
  const page = (offset: number, signal?: AbortSignal) =>
    api.search(requested.kind, { ...body, limit: PAGE, offset, explain_query: true }, signal);
  const found = useLoad(async (signal) => (ready ? page(0, signal) : undefined), identity);
  const [rest, setRest] = useState<{ of: Found; hits: Hit[]; offset: number; more: boolean; error: string }>();
  const following = rest !== undefined && rest.of === found.value ? rest : undefined;
  const hits = [...(found.value?.results ?? []), ...(following?.hits ?? [])];
  const more = following?.more ?? found.value?.has_more;

  const loadMore = async () => {
    const of = found.value;
    if (of === undefined) return;
    const [old, offset] = [following?.hits ?? [], following?.offset ?? of.results.length];
    try {
      const next = await page(offset);
      const shown = new Set(hits.map(({ id }) => id));
      const added = next.results.filter(({ id }) => !shown.has(id));
      setRest({ of, hits: [...old, ...added], offset: offset + next.results.length, more: next.has_more, error: "" });
    } catch (failure) {
      setRest({ of, hits: old, offset, more: true, error: asApiError(failure).message });
    }
  };

  const run = (wanted: Query) => {
    setQuery(wanted);
    const target = link(wanted);
    if (target === location.hash) found.reload();
    else location.hash = target;
  };
  const change = (part: Partial<Query>) => setQuery({ ...query, ...part });
  const choose = (kind: Query["kind"]) => {
    const next = { ...query, kind };
    if (kind === "filters" || next.text.trim() !== "") return run(next);
    setQuery(next);
    box.current?.focus();
  };
  const filtered = filterCount(query);
  return (
    <section class="view">
      <Head title="Search" />
      <form
        class="search"
        role="search"
        onSubmit={(event) => {
          event.preventDefault();
          run(query);
        }}
      >
        {query.kind !== "filters" && (
          <div class="box">
            <input ref={box} type="search" aria-label="What to search for" placeholder="What do you look for?" maxLength={10_000} value={query.text} onInput={(event) => change({ text: inputValue(event) })} />
            <Button type="submit" tone="main" icon="search">
              Search
            </Button>
          </div>
        )}
        <div class="row">
          <Choices
            name="kind"
            label="Kind of search"
            value={query.kind}
            onChange={choose}
            choices={KINDS.map(({ kind, label, hint }) => {
              const why = unavailable(kind, statistics.value);
              return { value: kind, label, hint: why ?? hint, disabled: why !== undefined };
            })}
          />
          {query.kind === "fts" && (
            <select aria-label="How the words are read" value={query.mode} onChange={(event) => run({ ...query, mode: FTS_MODES.find(({ mode }) => mode === event.currentTarget.value)?.mode ?? "match" })}>
              {FTS_MODES.map(({ mode, label }) => (
                <option key={mode} value={mode}>
                  {label}
                </option>
              ))}
            </select>
          )}
          {query.kind !== "filters" && (
            <Button tone="quiet" icon="filter" expanded={open} onClick={() => setOpen(!open)}>
              {filtered > 0 ? counted(filtered, "filter") : "Add filters"}
            </Button>
          )}
        </div>
        {!found.value?.warnings?.length && KINDS.flatMap(({ kind, label }) => {
          const why = unavailable(kind, statistics.value);
          return why !== undefined && kind !== "hybrid" ? [<p key={kind} class="note">{`“${label}” is off: ${why}`}</p>] : [];
        })}
        {(open || query.kind === "filters") && (
          <Filters query={query} change={change} threads={threads.value?.threads.map(({ thread_id }) => thread_id) ?? []} />
        )}
        {(open || query.kind === "filters") && (
          <div class="row">
            <Button type="submit" tone={query.kind === "filters" ? "main" : "plain"}>
              Apply the filters
            </Button>
            {filtered > 0 && (
              <Button tone="quiet" onClick={() => run({ ...read(new URLSearchParams()), kind: query.kind, mode: query.mode, text: query.text })}>
                Clear them
              </Button>
            )}
          </div>
        )}
      </form>

      {ready && found.error && <Trouble error={found.error} again={found.reload} />}
      {ready && found.busy && found.value === undefined && <Waiting rows={4} />}
      {ready && found.value && (
        <>
          <Outcome found={found.value} shown={hits.length} more={more === true} />
          {hits.length === 0 && (
            <Empty title="Nothing was found.">
              <p>
                {requested.kind === "fts" && requested.mode !== "match" ? "The mode “the words” may find more. " : ""}
                {nothing(requested)}
              </p>
            </Empty>
          )}
          <div class="entries">
            {hits.map((hit) => (
              <EntryView key={hit.id} entry={hit} showThread snippet={snippetOf(hit)}>
                {requested.kind !== "filters" && <Why hit={hit} all={hits} />}
              </EntryView>
            ))}
          </div>
          {following?.error && <p class="note">{following.error}</p>}
          {more && (
            <div class="row middle">
              <Button onClick={() => void loadMore()}>More results</Button>
            </div>
          )}
          <Missing key={identity} query={requested} hits={hits} />
          <details class="more commands">
            <summary>This search as a command</summary>
            <Code name="curl" text={curl(requested.kind, body, rights.keyed)} />
            <Code name="grpcurl" text={grpcurl(requested.kind, body, rights.keyed)} />
            <Code name="MCP" text={mcp(requested.kind, body)} />
          </details>
        </>
      )}
      {!ready && (
        <Empty title="Find what was stored.">
          <p>“Best” looks for the words and for the meaning. Every result says why it was found.</p>
        </Empty>
      )}
    </section>
  );
}

/** Why a kind of search cannot be used now. */
function unavailable(kind: Query["kind"], statistics: Statistics | undefined): string | undefined {
  if (statistics === undefined || kind === "filters") return undefined;
  const state = { fts: statistics.fts, semantic: statistics.semantic_search, hybrid: statistics.hybrid_search }[kind];
  return state.available ? undefined : (state.reason ?? "not available");
}

function snippetOf(hit: Hit) {
  if (typeof hit.highlighted !== "string" || hit.highlighted === "") return undefined;
  return pieces(hit.highlighted).map((piece, i) => (piece.hit ? <mark key={i}>{piece.text}</mark> : piece.text));
}

/** One line about the outcome of the search, and its warnings and plan. */
function Outcome({ found, shown, more }: { found: Found; shown: number; more: boolean }) {
  const plan = found.stats?.query_plan ?? [];
  return (
    <div class="outcome">
      <p role="status">
        {more ? `The first ${count(shown)} results` : counted(shown, "result")}
        {found.stats && ` in ${found.stats.execution_time_ms.toFixed(1)} ms`}
        {found.search_modes_used && `, by ${found.search_modes_used.map((mode) => (mode === "fts" ? "words" : mode === "semantic" ? "meaning" : mode)).join(" and ")}`}
        {found.model !== undefined && `, by ${found.model}`}
      </p>
      {found.warnings?.map((warning) => (
        <p key={warning} class="note">
          {warning}
        </p>
      ))}
      {plan.length > 0 && (
        <details class="more">
          <summary>How it ran</summary>
          <pre tabIndex={0} aria-label="How it ran">
            {plan.join("\n")}
          </pre>
        </details>
      )}
    </div>
  );
}

interface Reason {
  label: string;
  share: number;
  detail: string;
}

/** Why a result was found: its relevance, its score in each search, and the reranker's score. */
export function reasons(hit: Hit, all: Hit[]): Reason[] {
  const scores = hit.scores as Record<string, number | null | undefined> | null | undefined;
  if (!scores) return [];
  const list: Reason[] = [];
  const { fts_score: words, fts_rank: wordsRank, semantic_distance: distance, semantic_rank: meaningRank, rerank_score: rerank } = scores;
  if (typeof hit.relevance === "number") list.push({ label: "Relevance", share: hit.relevance, detail: hit.relevance.toFixed(2) });
  if (typeof words === "number") {
    const best = Math.max(...all.map((one) => (one.scores as { fts_score?: number | null } | null | undefined)?.fts_score ?? 0), 1e-9);
    list.push({ label: "Words", share: words / best, detail: `${words.toFixed(2)}${ranked(wordsRank)}` });
  }
  if (typeof distance === "number") {
    // The vectors have length 1, so the cosine follows from the distance.
    list.push({ label: "Meaning", share: 1 - (distance * distance) / 2, detail: `distance ${distance.toFixed(2)}${ranked(meaningRank)}` });
  }
  if (typeof rerank === "number") list.push({ label: "Reranker", share: rerank, detail: rerank.toFixed(2) });
  return list;
}

const ranked = (rank: number | null | undefined): string => (typeof rank === "number" ? `, rank ${rank}` : "");

function Why({ hit, all }: { hit: Hit; all: Hit[] }) {
  const list = reasons(hit, all);
  if (list.length === 0) return null;
  const scores = hit.scores as { rrf?: number; fts_score?: number | null; semantic_distance?: number | null };
  const only =
    scores.rrf === undefined ? undefined : scores.fts_score === null ? "Found by its meaning only" : scores.semantic_distance === null ? "Found by its words only" : undefined;
  return (
    <dl class="why" aria-label="Why it was found">
      {list.map(({ label, share, detail }) => (
        <div key={label}>
          <dt>{label}</dt>
          <dd>
            <Bar value={share} tone={label.toLowerCase()} />
            <span>{detail}</span>
          </dd>
        </div>
      ))}
      {only !== undefined && (
        <div class="only">
          <dt class="unseen">Note</dt>
          <dd>{only}</dd>
        </div>
      )}
    </dl>
  );
}

interface FiltersProps {
  query: Query;
  change: (part: Partial<Query>) => void;
  threads: string[];
}

function Filters({ query, change, threads }: FiltersProps) {
  const { fresh } = useApp();
  const keys = useLoad((signal) => api.metadataKeys(signal), "keys", fresh);
  const tags = useLoad((signal) => api.tags(signal), "tags", fresh);
  const condition = (at: number, part: Partial<Condition>) =>
    change({ conditions: query.conditions.map((one, i) => (i === at ? { ...one, ...part } : one)) });
  return (
    <div class="filters">
      <div class="grid">
        <Field label="Thread">
          <input list="known-threads" value={query.thread} onInput={(event) => change({ thread: inputValue(event) })} />
        </Field>
        <Field label="Tags" hint="any of them">
          <input list="known-tags" value={query.tags} onInput={(event) => change({ tags: inputValue(event) })} />
        </Field>
        <Field label="Written by">
          <select value={query.source} onChange={(event) => change({ source: inputValue(event) })}>
            <option value="">anyone</option>
            <option value="agent">an agent</option>
            <option value="user">a user</option>
          </select>
        </Field>
        <Field label="Images">
          <select value={query.type} onChange={(event) => change({ type: inputValue(event) })}>
            <option value="">with or without</option>
            <option value="multimodal">with images</option>
            <option value="text">text only</option>
          </select>
        </Field>
        <Field label="From">
          <input type="date" value={query.from} onInput={(event) => change({ from: inputValue(event) })} />
        </Field>
        <Field label="Until">
          <input type="date" value={query.until} onInput={(event) => change({ until: inputValue(event) })} />
        </Field>
      </div>
      {query.conditions.map(({ key, operator, value }, i) => (
        <div class="condition" role="group" aria-label={`Condition ${i + 1} on metadata`} key={i}>
          <input list="known-keys" aria-label="Metadata key" placeholder="key, or path.to.key" value={key} onInput={(event) => condition(i, { key: inputValue(event) })} />
          <select aria-label="Comparison" value={operator} onChange={(event) => condition(i, { operator: OPERATORS.find((one) => one.operator === event.currentTarget.value)?.operator ?? "eq" })}>
            {OPERATORS.map((one) => (
              <option key={one.operator} value={one.operator}>
                {one.label}
              </option>
            ))}
          </select>
          {takesValue(operator) ? (
            <input list={`known-values-${i}`} aria-label="Value" placeholder='value; "5" is a text' value={value} onInput={(event) => condition(i, { value: inputValue(event) })} />
          ) : (
            <span />
          )}
          <Button small tone="quiet" icon="close" label={`Remove condition ${i + 1}`} onClick={() => change({ conditions: query.conditions.filter((_, at) => at !== i) })} />
          <Values id={`known-values-${i}`} operator={operator} of={keys.value?.keys.some((one) => one.key === key) ? key : ""} />
        </div>
      ))}
      <Button small tone="quiet" icon="plus" onClick={() => change({ conditions: [...query.conditions, { key: "", operator: "eq", value: "" }] })}>
        Condition on metadata
      </Button>
      <datalist id="known-threads">
        {threads.map((name) => (
          <option key={name} value={name} />
        ))}
      </datalist>
      <datalist id="known-tags">
        {tags.value?.tags.map(({ tag, entry_count }) => (
          <option key={tag} value={tagList([tag])} label={counted(entry_count, "entry", "entries")} />
        ))}
      </datalist>
      <datalist id="known-keys">
        {keys.value?.keys.map(({ key, entry_count }) => (
          <option key={key} value={key} label={counted(entry_count, "entry", "entries")} />
        ))}
      </datalist>
    </div>
  );
}

/** Suggests the existing values of a key. */
function Values({ id, operator, of }: { id: string; operator: Operator; of: string }) {
  const values = useLoad(async (signal) => (of === "" ? undefined : api.metadataValues(of, signal)), of);
  return (
    <datalist id={id}>
      {values.value?.values.map(({ value, entry_count }) => {
        const text = written(value, operator);
        return <option key={text} value={text} label={counted(entry_count, "entry", "entries")} />;
      })}
    </datalist>
  );
}

/** What may find more when a search found nothing. */
function nothing(query: Query): string {
  if (filterCount(query) > 0) return "Every filter must hold; fewer filters find more.";
  if (query.kind === "filters") return "Nothing is stored yet.";
  return query.kind === "fts" ? "Other words, or a search by meaning, may find more." : "Other words may find more.";
}
