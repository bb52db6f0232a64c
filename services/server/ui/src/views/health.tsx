// The state of the service: its data, which features work, how long operations take.

import type { ComponentChildren } from "preact";

import { address, api, session, type Statistics } from "../api";
import { useApp } from "../context";
import { count, counted, dateOf, duration } from "../format";
import { useLoad } from "../hooks";
import { operations } from "../metrics";
import { Bar, Head, Trouble, Waiting } from "../parts/basics";
import { DayBars, Uncounted, useDays } from "../parts/days";

export function Health() {
  const { fresh, rights } = useApp();
  const { value, error, reload } = useLoad((signal) => api.statistics(signal), "statistics", fresh);
  const metrics = useLoad(async (signal) => operations(await api.metrics(signal)), "metrics", fresh);
  return (
    <section class="view">
      <Head title="Health">
        <div class="row">
          <a class="button" href={address("docs/").href}>
            API explorer
          </a>
          <a class="button" href={address("metrics").href}>
            Metrics
          </a>
        </div>
      </Head>
      {error && <Trouble error={error} again={reload} />}
      {value === undefined && !error && <Waiting rows={5} />}
      {value && <Counts of={value} />}
      <OverTime fresh={fresh} />
      {value && <Features of={value} keyed={rights.keyed} />}
      {metrics.value && metrics.value.length > 0 && (
        <>
          <h2>Operations since the start</h2>
          <div class="scroll" tabIndex={0} role="region" aria-label="Operations since the start">
            <table class="numbers">
              <thead>
                <tr>
                  <th scope="col">Operation</th>
                  <th scope="col">Calls</th>
                  <th scope="col">Failed</th>
                  <th scope="col">Median</th>
                  <th scope="col">95 %</th>
                  <th scope="col">
                    <span class="unseen">95 %, as a bar</span>
                  </th>
                </tr>
              </thead>
              <tbody>
                {metrics.value.map(({ name, total, failed, median, p95 }) => (
                  <tr key={name}>
                    <th scope="row">
                      <code>{name}</code>
                    </th>
                    <td>{count(total)}</td>
                    <td class={failed > 0 ? "some" : undefined}>{count(failed)}</td>
                    <td>{Number.isNaN(median) ? "–" : duration(median)}</td>
                    <td>{Number.isNaN(p95) ? "–" : duration(p95)}</td>
                    <td class="wide">
                      <Bar value={Number.isNaN(p95) ? 0 : (Math.log10(p95) + 4) / 5} tone={p95 > 1 ? "warn" : "accent"} />
                    </td>
                  </tr>
                ))}
              </tbody>
            </table>
          </div>
          <p class="note">All callers together. Times are estimated from a histogram; each fifth of a bar is ten times longer.</p>
        </>
      )}
    </section>
  );
}

function Counts({ of }: { of: Statistics }) {
  const { by_source: source, by_content_type: type, semantic_search: semantic } = of;
  return (
    <div class="cards">
      <Card title="Entries" figure={count(of.total_entries)}>
        <Split parts={[["agent", source.agent, "by agents"], ["user", source.user, "by users"]]} />
      </Card>
      <Card title="Images" figure={count(of.total_images)}>
        <Split parts={[["image", type.multimodal, "with images"], ["plain", type.text, "text only"]]} />
      </Card>
      <Card title="Tags" figure={count(of.unique_tags)}>
        <p class="facts">different ones in use</p>
      </Card>
      <Card title="Size" figure={`${of.database_size_mb < 10 ? of.database_size_mb.toFixed(1) : count(Math.round(of.database_size_mb))} MB`}>
        <p class="facts">{of.fts.backend === "sqlite" ? "SQLite" : "PostgreSQL"}</p>
      </Card>
      <Card title="Found by words" figure={of.fts.available ? percent(of.fts.coverage_percentage) : "off"}>
        <Bar value={of.fts.available ? of.fts.coverage_percentage / 100 : 0} />
        <p class="facts">{counted(of.fts.indexed_entries, "entry", "entries")} in the index</p>
      </Card>
      <Card title="Found by meaning" figure={semantic.available ? percent(semantic.coverage_percentage) : "off"}>
        <Bar value={semantic.available ? semantic.coverage_percentage / 100 : 0} />
        <p class="facts">
          {semantic.pending_count
            ? `${counted(semantic.pending_count, "entry waits", "entries wait")}${semantic.pending_seconds ? `, about ${duration(semantic.pending_seconds)}` : ""}`
            : semantic.available
              ? "nothing waits for an embedding"
              : "Semantic search below says why"}
        </p>
      </Card>
    </div>
  );
}

/** How many entries were created on each of the last days. */
function OverTime({ fresh }: { fresh: number | string }) {
  const { value, error, reload } = useDays(undefined, fresh);
  if (error) return <Trouble error={error} again={reload} />;
  if (value === undefined) return null;
  return (
    <>
      <h2>Entries over time</h2>
      <div class="card over-time">
        <DayBars of={value} />
        <p class="facts">
          <span>{dateOf(value.days[0]?.date ?? "")}</span>
          <span>{`at most ${count(value.most)} a day`}</span>
          <span>today</span>
        </p>
        <Uncounted of={value} />
      </div>
    </>
  );
}

const percent = (n: number): string => `${n >= 99.95 || n === 0 ? Math.round(n) : n.toFixed(1)} %`;

function Card({ title, figure, children }: { title: string; figure: string; children: ComponentChildren }) {
  return (
    <div class="card">
      <h2>{title}</h2>
      <p class="figure">{figure}</p>
      {children}
    </div>
  );
}

/** Parts of a whole, as one bar with its legend. */
function Split({ parts }: { parts: [tone: string, value: number, label: string][] }) {
  const total = Math.max(parts.reduce((sum, [, value]) => sum + value, 0), 1);
  let x = 0;
  return (
    <>
      <svg class="bar split" viewBox="0 0 100 6" preserveAspectRatio="none" aria-hidden="true">
        <rect class="track" width="100" height="6" />
        {parts.map(([tone, value]) => {
          const width = (value / total) * 100;
          x += width;
          return <rect key={tone} class={tone} x={x - width} width={width} height="6" />;
        })}
      </svg>
      <p class="facts legend">
        {parts.map(([tone, value, label]) => (
          <span key={tone}>
            <span class={`dot ${tone}`} aria-hidden="true" />
            {count(value)} {label}
          </span>
        ))}
      </p>
    </>
  );
}

interface Feature {
  name: string;
  on: boolean;
  /** What the feature uses, or why it is off. */
  detail: string;
  /** How to turn the feature on, if `detail` may not say it. */
  how?: string;
}

function features(of: Statistics, keyed: boolean): Feature[] {
  const { fts, semantic_search: semantic, hybrid_search: hybrid, reranking, summary_generation: summaries } = of;
  return [
    { name: "Full-text search", on: fts.available, detail: fts.reason ?? `${fts.engine}, ${fts.language}` },
    {
      name: "Semantic search",
      on: semantic.available,
      detail: semantic.reason ?? `${semantic.model ?? "a model"}, ${count(semantic.dimensions ?? 0)} dimensions`,
      how: "Run “context-service fetch-model” once (91 MB), or name a provider with EMBEDDING_PROVIDER; then start the service again.",
    },
    { name: "Hybrid search", on: hybrid.available, detail: hybrid.reason ?? "words and meaning, as far as each is on" },
    {
      name: "Reranking",
      on: reranking.available,
      detail: reranking.reason ?? [reranking.provider, reranking.model].filter(Boolean).join(", "),
      how: "It comes with the embedding model of the service; RERANK_PROVIDER names another reranker.",
    },
    {
      name: "Summaries",
      on: summaries.available,
      detail: summaries.reason ?? `${[summaries.provider, summaries.model].filter(Boolean).join(", ")}; ${counted(summaries.summary_count, "summary", "summaries")}`,
    },
    {
      name: "API keys",
      on: keyed,
      detail: keyed
        ? "every operation needs a key or token"
        : session()
          ? "this port accepts only pages that “context-gateway open” opened"
          : "anyone who reaches this address may read, change and delete everything",
      how: "Start the service with AUTH=keys; it prints the first key.",
    },
  ];
}

/** How to turn on a feature that is off, unless its reason says that already. */
function hint({ detail, how }: Feature): string | undefined {
  const setting = /\bswitched off by (ENABLE_\w+)=false/.exec(detail)?.[1];
  if (setting !== undefined) return `Set ${setting}=auto and start the service again.`;
  return /\bset [A-Z]|fetch-model/.test(detail) ? undefined : how;
}

function Features({ of, keyed }: { of: Statistics; keyed: boolean }) {
  return (
    <>
      <h2>Features</h2>
      <ul class="features">
        {features(of, keyed).map((feature) => {
          const how = feature.on ? undefined : hint(feature);
          return (
            <li key={feature.name} class={feature.on ? "on" : "off"}>
              <span class="state">{feature.on ? "on" : "off"}</span>
              <div>
                <strong>{feature.name}</strong>
                <p>{feature.detail}</p>
                {how !== undefined && <p class="how">{how}</p>}
              </div>
            </li>
          );
        })}
      </ul>
    </>
  );
}
