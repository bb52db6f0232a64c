// Reads /metrics: how often each operation ran, how often it failed, and how long it took.

export interface Operation {
  name: string;
  total: number;
  failed: number;
  median: number;
  p95: number;
}

interface Counts {
  total: number;
  failed: number;
  buckets: Map<number, number>;
}

export function operations(text: string): Operation[] {
  const all = new Map<string, Counts>();
  for (const line of text.split("\n")) {
    const found = /^context_(requests_total|request_duration_seconds_bucket)\{([^}]*)\} (\S+)/.exec(line);
    if (found === null) continue;
    const [, metric, labels = "", value] = found;
    const label = (name: string) => new RegExp(`(?:^|,)${name}="([^"]*)"`).exec(labels)?.[1] ?? "";
    const name = label("operation");
    const counts = all.get(name) ?? { total: 0, failed: 0, buckets: new Map() };
    all.set(name, counts);
    const n = Number(value);
    if (metric === "requests_total") {
      counts.total += n;
      if (label("outcome") !== "OK") counts.failed += n;
    } else {
      const bound = label("le") === "+Inf" ? Infinity : Number(label("le"));
      counts.buckets.set(bound, (counts.buckets.get(bound) ?? 0) + n);
    }
  }
  return [...all]
    .map(([name, { total, failed, buckets }]) => ({ name, total, failed, median: quantile(buckets, 0.5), p95: quantile(buckets, 0.95) }))
    .filter(({ total }) => total > 0)
    .sort((a, b) => b.total - a.total);
}

/** Estimated within its bucket, as Prometheus does. */
export function quantile(buckets: Map<number, number>, share: number): number {
  const bounds = [...buckets].sort(([a], [b]) => a - b);
  const total = bounds.at(-1)?.[1] ?? 0;
  if (total === 0) return Number.NaN;
  const wanted = total * share;
  let lower = 0;
  let below = 0;
  for (const [bound, upTo] of bounds) {
    if (upTo >= wanted) {
      if (bound === Infinity) return lower;
      return lower + (bound - lower) * ((wanted - below) / Math.max(upTo - below, 1));
    }
    lower = bound;
    below = upTo;
  }
  return lower;
}
