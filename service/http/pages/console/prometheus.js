// The Prometheus text format, and what Prometheus computes of it: rates of counters, quantiles of histograms.

const LINE = /^([a-zA-Z_:][\w:]*)(?:\{(.*)\})? (\S+)/;
const LABEL = /([a-zA-Z_]\w*)="((?:[^"\\]|\\.)*)"/g;

const unescape = (text) => text.replace(/\\(.)/g, (_, letter) => (letter === "n" ? "\n" : letter));

/** The samples of some metrics by name: `[{labels, value}]`. Names that do not stand there have none. */
export function readMetrics(text, names) {
  const samples = Object.fromEntries(names.map((name) => [name, []]));
  for (const line of text.split("\n")) {
    const [, name, labels, value] = LINE.exec(line) ?? [];
    if (!Object.hasOwn(samples, name)) continue;
    const pairs = [...(labels ?? "").matchAll(LABEL)].map(([, label, content]) => [label, unescape(content)]);
    samples[name].push({ labels: Object.fromEntries(pairs), value: Number(value.replace("Inf", "Infinity")) });
  }
  return samples;
}

/** Sums of samples by the values of some labels: a Map from the values, joined by tabs. */
export function sumBy(samples, ...labels) {
  const sums = new Map();
  for (const sample of samples) {
    const group = labels.map((label) => sample.labels[label]).join("\t");
    sums.set(group, (sums.get(group) ?? 0) + sample.value);
  }
  return sums;
}

/** By how much each counter grew from one Map to a later one. One that fell began anew, as its process did. */
export function increase(before, after) {
  return new Map([...after].map(([group, value]) => {
    const start = before.get(group) ?? 0;
    return [group, value >= start ? value - start : value];
  }));
}

/** A quantile of a histogram, as Prometheus' histogram_quantile has it: linear within a bucket. NaN without counts.

`buckets` are pairs of an upper bound and a cumulative count. */
export function findQuantile(quantile, buckets) {
  const sorted = [...buckets].sort(([one], [other]) => one - other);
  const total = sorted.at(-1)?.[1] ?? 0;
  if (total <= 0) return NaN;
  const rank = quantile * total;
  const at = sorted.findIndex(([, count]) => count >= rank);
  const [bound, count] = sorted[at];
  const [low, below] = at > 0 ? sorted[at - 1] : [0, 0];
  if (bound === Infinity) return low;
  return count === below ? bound : low + ((bound - low) * (rank - below)) / (count - below);
}
