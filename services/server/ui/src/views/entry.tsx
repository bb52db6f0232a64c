// The page of one entry.

import { api } from "../api";
import { useApp } from "../context";
import { useLoad } from "../hooks";
import { Empty, Head, Trouble, Waiting } from "../parts/basics";
import { isUnsaved } from "../parts/editor";
import { EntryView } from "../parts/entry";
import { to } from "../route";

export function EntryPage({ id }: { id: number }) {
  const { fresh } = useApp();
  const { value, error, reload } = useLoad((signal) => api.entry(id, false, signal), String(id), fresh);
  return (
    <section class="view">
      <Head title={`Entry ${id}`} />
      {error?.reason === "CONTEXT_NOT_FOUND" && !(value && isUnsaved(id)) ? (
        <Empty title="There is no such entry. It may have been deleted." />
      ) : (
        <>
          {error && <Trouble error={error} again={reload} />}
          {value === undefined && !error && <Waiting rows={2} />}
          {value && (
            <div class="entries">
              <EntryView entry={value} showThread onChange={reload} />
            </div>
          )}
          {value && (
            <p>
              <a href={to("threads", value.thread_id, { at: value.id, until: value.created_at })}>What came before it in its thread</a>
            </p>
          )}
        </>
      )}
    </section>
  );
}
