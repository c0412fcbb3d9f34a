// Live: what happens now and in the last ten minutes, from /metrics alone. Prometheus keeps it for longer.
import { call } from "./api.js";
import { Chart, MAX_LINES } from "./charts.js";
import { html } from "./dom.js";
import { usePolled } from "./parts.js";
import { findQuantile, increase, readMetrics, sumBy } from "./prometheus.js";
import { formatMs, ProblemNote } from "./ranked_list.js";

const EVERY_MS = 4000;
const KEPT_S = 600;
const RATE_S = 10; // rates and quantiles are those of the last so many seconds
const [ANSWERS, STAGES, EVENTS] = ["nextitem_recommendations_total", "nextitem_stage_duration_seconds_bucket", "nextitem_events_total"];
const [TRIALS, HITS] = ["nextitem_online_trials_total", "nextitem_online_hits_total"];
const NAMES = [ANSWERS, STAGES, EVENTS, TRIALS, HITS];
const PATH = `metrics?${new URLSearchParams(NAMES.map((name) => ["name[]", name]))}`; // these alone: the others take longer
const ORDER = ["encode", "queue", "history", "inference", "respond"];

/** What was read in the last ten minutes, oldest first. It outlives the view: who comes back sees it again. */
const readings = [];

async function read(signal) {
  const samples = readMetrics(await call("GET", PATH, { signal, text: true }), NAMES);
  const reading = {
    at: Date.now() / 1000,
    answers: sumBy(samples[ANSWERS], "source"),
    stages: sumBy(samples[STAGES], "stage", "le"),
    events: sumBy(samples[EVENTS], "result"),
    trials: sumBy(samples[TRIALS], "version"),
    hits: sumBy(samples[HITS], "version"),
  };
  const start = readings.find(({ at }) => reading.at - at <= RATE_S);
  reading.grown = start && compare(start, reading); // nobody looked for longer than that: the lines break
  readings.push(reading);
  while (readings[0].at < reading.at - KEPT_S) readings.shift();
  return makeLines();
}

const finite = (value) => (Number.isFinite(value) ? value : null);

/** What Prometheus' rate and histogram_quantile make of two readings, by kind and name. */
function compare(before, after) {
  const rate = (kind) => new Map([...increase(before[kind], after[kind])].map(([name, count]) => [name, count / (after.at - before.at)]));
  const buckets = new Map(ORDER.map((stage) => [stage, []]));
  for (const [group, count] of increase(before.stages, after.stages)) {
    const [stage, le] = group.split("\t");
    buckets.get(stage)?.push([Number(le.replace("+Inf", "Infinity")), count]);
  }
  const quantile = (q) => new Map(ORDER.map((stage) => [stage, finite(1000 * findQuantile(q, buckets.get(stage)))]));
  return { answers: rate("answers"), events: rate("events"), p50: quantile(0.5), p99: quantile(0.99) };
}

/** The lines of all charts: by name, a value or null for each of the times. */
export function makeLines() {
  const newest = readings.at(-1);
  const line = (kind, names) => new Map(names.map((name) => [name, readings.map(({ grown }) => grown?.[kind].get(name) ?? null)]));
  // The hit rate of all trials since the first reading: few events are judged in ten seconds.
  const first = readings[0];
  const judged = [...newest.trials.keys()].slice(-MAX_LINES);
  const hitRate = new Map(judged.map((version) => [version, readings.map((reading) =>
    finite(increase(first.hits, reading.hits).get(version) / increase(first.trials, reading.trials).get(version)))]));
  return {
    times: readings.map(({ at }) => at),
    answers: line("answers", [...newest.answers.keys()]),
    events: line("events", [...newest.events.keys()]),
    p50: line("p50", ORDER),
    p99: line("p99", ORDER),
    hitRate,
  };
}

const sayRate = (rate) => `${rate.toFixed(rate < 10 ? 1 : 0)}/s`;
const sayMs = (ms) => `${formatMs(ms)} ms`;
const sayShare = (share) => `${(100 * share).toFixed(1)} %`;

/** The view. */
export function Live(shared) {
  const { answer, problem } = usePolled(read, EVERY_MS, shared);
  const chart = (title, lines, say) => html`<${Chart} title=${title} times=${answer.times} lines=${lines} say=${say} />`;
  return html`<div class="panels">
    ${problem && html`<${ProblemNote} problem=${problem} />`}
    ${answer && html`<div class="panels halves">
      ${chart("Answers per second, by source", answer.answers, sayRate)}
      ${chart("Events per second, by result", answer.events, sayRate)}
      ${chart("Median time of each stage", answer.p50, sayMs)}
      ${chart("99th percentile of each stage", answer.p99, sayMs)}
      ${chart("Hits among the first ten, by version", answer.hitRate, sayShare)}
    </div>
    <p class="hint">All workers of this service, every four seconds while you look, ten minutes at most. Rates and times are
      those of ten seconds, hits those of all events that were judged since the left end.</p>`}
  </div>`;
}
