// The artifacts: each with its versions, the differences between them, and a button to restore one.

import { useEffect, useMemo, useState } from "preact/hooks";

import { api, type ApiError, type ArtifactItem } from "../api";
import { useApp } from "../context";
import { deleteLater, isGone, takeBack, usePending } from "../deletes";
import { lines, sideBySide } from "../diff";
import { count, counted } from "../format";
import { asApiError, useLoad, useWide } from "../hooks";
import { say } from "../notices";
import { Button, Choices, Copy, Empty, Head, Icon, inputValue, Time, Trouble, Waiting } from "../parts/basics";
import { Metadata, Text } from "../parts/entry";
import { replace, type Route, to } from "../route";

export function Artifacts({ route }: { route: Route }) {
  const wide = useWide(900);
  return (
    <section class="view panes">
      {(wide || route.id === undefined) && <List opened={route.id} />}
      {route.id !== undefined ? <One key={route.id} id={route.id} query={route.query} back={!wide} /> : wide && <Empty title="Choose an artifact." />}
    </section>
  );
}

function List({ opened }: { opened: string | undefined }) {
  const { fresh } = useApp();
  const [pages, setPages] = useState(1);
  const [typed, setTyped] = useState("");
  const wanted = useDebounced(typed.trim());
  const { value, error, reload } = useLoad(
    async (signal): Promise<{ all: ArtifactItem[]; total: number | undefined }> => {
      if (wanted !== "") return { all: (await api.findArtifacts(wanted, signal)).result, total: undefined };
      const all: ArtifactItem[] = [];
      let cursor: string | undefined;
      let total = 0;
      for (let page = 0; page < pages; page += 1) {
        const reply = await api.artifacts(50, cursor, signal);
        all.push(...reply.result);
        total = reply.total;
        cursor = reply.next_cursor ?? undefined;
        if (cursor === undefined) break;
      }
      return { all, total };
    },
    `artifacts ${wanted}`,
    `${fresh} ${pages}`,
  );
  const listed = value?.all.filter(({ id }) => !isGone(`artifact ${id}`));
  return (
    <div class="list">
      <Head title="Artifacts">{value?.total !== undefined && <span class="total">{count(value.total)}</span>}</Head>
      <input type="search" aria-label="Find in titles and contents" placeholder="Find in titles and contents" maxLength={1000} value={typed} onInput={(event) => setTyped(inputValue(event))} />
      {error && <Trouble error={error} again={reload} />}
      {value === undefined && !error && <Waiting rows={6} />}
      {listed && listed.length === 0 && (
        <Empty title={wanted === "" ? "There are no artifacts yet." : "No artifact has this in it."}>
          {wanted === "" && <p>Agents keep plans, prompts and notes here, with every version.</p>}
        </Empty>
      )}
      {listed && listed.length > 0 && (
        <ul class="items">
          {listed.map((item) => (
            <li key={item.id}>
              <a href={to("artifacts", item.id)} aria-current={item.id === opened ? "page" : undefined}>
                <span class="name">{item.title}</span>
                <span class="facts">
                  <Time at={"updated_at" in item ? item.updated_at : item.created_at} />
                </span>
                <span class="preview">{"relevance_context" in item ? item.relevance_context : item.content_preview}</span>
              </a>
            </li>
          ))}
        </ul>
      )}
      {value?.total !== undefined && value.all.length < value.total && <Button onClick={() => setPages(pages + 1)}>Load more</Button>}
    </div>
  );
}

/** The text after the user has stopped typing. */
function useDebounced(text: string): string {
  const [settled, setSettled] = useState(text);
  useEffect(() => {
    const timer = setTimeout(() => setSettled(text), 250);
    return () => clearTimeout(timer);
  }, [text]);
  return settled;
}

function One({ id, query, back }: { id: string; query: URLSearchParams; back: boolean }) {
  const { rights, fresh } = useApp();
  const { value, error, reload } = useLoad(
    async (signal) => {
      const [artifact, versions] = await Promise.all([api.artifact(id, signal), api.versions(id, signal)]);
      return { artifact, versions };
    },
    id,
    fresh,
  );
  const [problem, setProblem] = useState<ApiError>();
  const name = `artifact ${id}`;
  const leaving = usePending().some((one) => one.id === name);
  if (isGone(name) || error?.reason === "ARTIFACT_NOT_FOUND") return <Empty title="There is no such artifact. It may have been deleted." />;
  if (value === undefined) return <div class="detail">{error ? <Trouble error={error} again={reload} /> : <Waiting rows={5} />}</div>;

  const { artifact, versions } = value;
  const current = artifact.version;
  const shown = bounded(query.get("version"), current, current);
  const against = bounded(query.get("against"), current, 0);
  const select = (part: { version?: number | undefined; against?: number | undefined }) => replace(to("artifacts", id, { version: part.version, against: part.against }));
  const restore = async (version: number) => {
    setProblem(undefined);
    try {
      const reply = await api.restore(id, version, current);
      say(`Version ${version} is restored, as version ${reply.current_version}.`);
      select({});
      reload();
    } catch (failure) {
      const apiError = asApiError(failure);
      setProblem(apiError);
      if (apiError.reason === "VERSION_MISMATCH") reload();
    }
  };
  const history = [
    { version: current, title: artifact.title, updated_at: artifact.updated_at, changes: undefined },
    ...versions.recent_versions.map((one) => ({ version: one.version, title: one.title, updated_at: one.updated_at, changes: one.changes })),
  ];
  return (
    <div class="detail">
      <Head title={artifact.title}>
        <div class="row">
          {back && (
            <a class="button" href={to("artifacts")}>
              <Icon name="back" />
              <span>Artifacts</span>
            </a>
          )}
          <Copy text={artifact.content} label="Copy its content" bare />
          {rights.artifacts.delete &&
            (leaving ? (
              <Button onClick={() => takeBack(name)}>Undo the deletion</Button>
            ) : (
              <Button tone="quiet" icon="trash" label="Delete with all versions" onClick={() => deleteLater(name, `“${artifact.title}”`, () => api.removeArtifact(id))} />
            ))}
        </div>
      </Head>
      <p class="facts">
        Version {count(current)} · <Time at={artifact.updated_at} /> · {counted(artifact.content.length, "character")} · <code>{id}</code>
      </p>
      {problem && <Trouble error={problem} />}
      <div class="document">
        <div class="sheet">
          {shown !== current && (
            <div class="banner">
              <span>
                Version {shown} of {current}
              </span>
              <span class="row">
                {against === 0 && <Button small onClick={() => select({ against: shown })}>Compare with the current one</Button>}
                {rights.artifacts.write && (
                  <Button small icon="restore" onClick={() => void restore(shown)}>
                    Restore version {shown}
                  </Button>
                )}
              </span>
            </div>
          )}
          {against > 0 ? (
            <Difference id={id} from={Math.min(against, shown)} to={Math.max(against, shown)} />
          ) : shown === current ? (
            <>
              <Text text={artifact.content} />
              <Metadata of={artifact.metadata} />
            </>
          ) : (
            <OldVersion id={id} version={shown} />
          )}
        </div>
        <aside aria-label="Versions">
          <h2>Versions</h2>
          <ol class="versions">
            {history.map(({ version, updated_at, changes }) => (
              <li key={version} class={version === shown ? "chosen" : undefined}>
                <button type="button" aria-pressed={version === shown && against === 0} onClick={() => select({ version: version === current ? undefined : version })}>
                  <strong>{version === current ? `${version}, current` : version}</strong>
                  <Time at={updated_at} />
                  {changes && changes.join() !== "content" && changes.length > 0 && <small>{changes.join(", ")}</small>}
                </button>
                {version > 1 && (
                  <Button small tone="quiet" label={`Changes of version ${version}`} pressed={against === version - 1 && shown === version} onClick={() => select({ version, against: version - 1 })}>
                    Changes
                  </Button>
                )}
              </li>
            ))}
          </ol>
          {current > history.length && <small>Older versions than these are kept too; the API returns them by number.</small>}
        </aside>
      </div>
    </div>
  );
}

/** A version number from the URL, or the default. */
function bounded(text: string | null, most: number, otherwise: number): number {
  const number = Number(text ?? "");
  return Number.isInteger(number) && number >= 1 && number <= most ? number : otherwise;
}

function OldVersion({ id, version }: { id: string; version: number }) {
  const { value, error, reload } = useLoad((signal) => api.version(id, version, signal), `${id} ${version}`);
  if (error) return <Trouble error={error} again={reload} />;
  if (value === undefined) return <Waiting rows={3} />;
  return (
    <>
      {value.title !== "" && <h2>{value.title}</h2>}
      <Text text={value.content} />
      <Metadata of={value.metadata} />
    </>
  );
}

function Difference({ id, from, to }: { id: string; from: number; to: number }) {
  const room = useWide(1500);
  const [layout, setLayout] = useState<"inline" | "side">(room ? "side" : "inline");
  const { value, error, reload } = useLoad((signal) => api.diff(id, from, to, signal), `${id} ${from} ${to}`);
  const all = useMemo(() => lines(value?.diff ?? ""), [value]);
  if (error) return <Trouble error={error} again={reload} />;
  if (value === undefined) return <Waiting rows={3} />;
  const added = all.filter(({ kind }) => kind === "added").length;
  const removed = all.filter(({ kind }) => kind === "removed").length;
  return (
    <>
      <div class="row spread">
        <p>
          From version {from} to {to}: <span class="plus">{counted(added, "line")} added</span>, <span class="minus">{counted(removed, "line")} removed</span>
          {value.changes.filter((what) => what !== "content").map((what) => `, ${what} changed`)}
        </p>
        <Choices
          name="layout"
          label="Layout"
          value={layout}
          onChange={setLayout}
          choices={[
            { value: "inline", label: "Inline" },
            { value: "side", label: "Side by side" },
          ]}
        />
      </div>
      {all.length === 0 ? (
        <Empty title="The content is the same." />
      ) : (
        <div class="diff" tabIndex={0} role="region" aria-label={`Changes from version ${from} to ${to}`}>
          {layout === "inline" ? (
            <table>
              <tbody>
                {all.map((line, i) => (
                  <tr key={i} class={line.kind}>
                    <td class="number">{line.before}</td>
                    <td class="number">{line.after}</td>
                    <td class="sign">{sign(line.kind)}</td>
                    <td class="line">{line.text}</td>
                  </tr>
                ))}
              </tbody>
            </table>
          ) : (
            <table class="two">
              <tbody>
                {sideBySide(all).map(([left, right], i) => (
                  <tr key={i}>
                    <td class="number">{left?.before}</td>
                    <td class={`line ${left?.kind ?? "none"}`}>{left?.text}</td>
                    <td class="number">{right?.after}</td>
                    <td class={`line ${right?.kind ?? "none"}`}>{right?.text}</td>
                  </tr>
                ))}
              </tbody>
            </table>
          )}
        </div>
      )}
    </>
  );
}

const sign = (kind: string): string => (kind === "added" ? "+" : kind === "removed" ? "−" : "");
