// Health: can it answer, what do workers and store say, and which problems were the last ones?
import { call } from "./api.js";
import { html } from "./dom.js";
import { Facts, sayAgo, State, Table, Time, usePolled } from "./parts.js";
import { ProblemNote } from "./ranked_list.js";

const EVERY_MS = 2000;
const STATES = {
  ok: "Ready",
  degraded: "Degraded: it goes on answering, but not as well as it could",
  starting: "Starting: it does not answer yet",
  draining: "Stopping: it answers what is under way",
};
const REASONS = {
  store_unavailable: "The store does not answer: histories cannot be read, and events are refused with 503.",
  store_not_durable: "The store's settings may lose events, so none is accepted. Set appendfsync to always.",
  store_refuses_events: "The store refuses events: it is full, a replica, or lacks a permission. The log says which.",
  store_lost_events: "The store has lost events that were acknowledged.",
  engine_unavailable: "The model's last run failed or hangs: neighbours or popular items stand in.",
  worker_missing: "A worker process does not serve.",
  batcher_stopped: "The queue before the model has stopped: nothing is answered.",
  deadline: "The answer came too late for the model: popular items stood in.",
  overloaded: "More was asked at once than fits: popular items stood in, or 503.",
  internal: "A bug. The log has the details under the request id.",
  search_not_ready: "The index of titles was being built.",
};
const MIB = 2 ** 20;

const sayMemory = ({ memory_bytes: used, memory_limit_bytes: limit }) =>
  `${Math.round(used / MIB).toLocaleString("en")} MiB ${
    limit ? `of ${Math.round(limit / MIB).toLocaleString("en")} (${Math.round((100 * used) / limit)} %)` : "without a limit"}`;

function listStore({ archive, clock_skew_s: skew, ...store }) {
  const pairs = [
    ["Durable", html`<${State} good=${store.durable}>${store.durable ? "yes" : "no: events are refused"}<//>`],
    ["Memory", sayMemory(store)],
  ];
  if (store.lost_events > 0) pairs.push(["Lost events", html`<${State} good=${false}>${store.lost_events}<//>`]);
  if (Math.abs(skew) >= 1) pairs.push(["Clock", `${Math.abs(skew).toFixed(1)} s ${skew > 0 ? "ahead" : "behind"}`]);
  if (!archive) return pairs;
  pairs.push(["Log", `${archive.log_length.toLocaleString("en")} events`]);
  pairs.push(["Archived", archive.last_success_at ? sayAgo(archive.last_success_at) : "never yet"]);
  if (archive.failed_runs > 0) pairs.push(["Failed runs since", html`<${State} good=${false}>${archive.failed_runs}<//>`]);
  if (archive.erasures_pending > 0) {
    pairs.push(["Erasures to be archived", `${archive.erasures_pending}, the oldest ${sayAgo(archive.oldest_erasure_at)}`]);
  }
  return pairs;
}

const listWorker = (worker) => [
  html`<bdi>${worker.worker}</bdi>`,
  html`<bdi>${worker.champion}</bdi>`,
  html`<bdi>${worker.candidate ?? "–"}</bdi>${worker.breaker_open && html` <${State} good=${false}>out of use for a minute<//>`}`,
  worker.generation,
  worker.refused ? html`<${State} good=${false}><bdi>${worker.refused.version}</bdi> (${worker.refused.code})<//>` : "–",
];

function Workers({ workers }) {
  const { configured, missing, reporting } = workers;
  return html`<section class="panel" aria-labelledby="workers"><h2 id="workers">Workers</h2>
    <p><${State} good=${missing === 0}>${configured - missing} of ${configured} serve<//></p>
    ${reporting === null && html`<p class="hint">What they serve is not known: the store does not answer.</p>`}
    ${reporting?.length > 0 && html`<${Table} label="What each worker serves" rows=${reporting.map(listWorker)}
      head=${["Worker", "Champion", "Candidate", "Generation", "Refused"]} />`}
  </section>`;
}

function Problems({ problems }) {
  const rows = problems.map((row) => [
    html`<${Time} at=${row.at} />`,
    html`<code>${row.route}</code>`,
    row.code === 200 ? "200, degraded" : row.code,
    html`<span title=${REASONS[row.reason] ?? ""}>${row.reason}</span>`,
    `×${row.count.toLocaleString("en")}`,
    html`<code class="whole">${row.request_id}</code>`,
  ]);
  return html`<section class="panel" aria-labelledby="problems"><h2 id="problems">Last problems</h2>
    ${rows.length === 0 && html`<p class="hint">None. Degraded answers and errors of the service would stand here.</p>`}
    ${rows.length > 0 && html`<${Table} label="The last problems, the newest first" rows=${rows}
      head=${["Time", "Route", "Status", "Reason", "Times", "Last request id"]} />
      <p class="hint">Alike problems of a minute are one row. The log has more under the request id.</p>`}
  </section>`;
}

/** The view. */
export function Health(shared) {
  const { answer, problem } = usePolled((signal) => call("GET", "status", { signal }), EVERY_MS, shared);
  return html`<div class="panels">
    ${problem && html`<${ProblemNote} problem=${problem} />`}
    ${answer && html`<div class="panels halves">
      <section class="panel" aria-labelledby="service"><h2 id="service">Service</h2>
        <p role="status"><${State} good=${answer.status === "ok" && !problem}>${
          problem ? "It does not answer. This is what it said last:" : STATES[answer.status] ?? answer.status}<//></p>
        ${answer.reasons.length > 0 && html`<ul class="reasons">${answer.reasons.map(
          (reason) => html`<li key=${reason}><code>${reason}</code> ${REASONS[reason]}</li>`)}</ul>`}
      </section>
      <section class="panel" aria-labelledby="store"><h2 id="store">Store</h2>
        ${answer.store ? html`<${Facts} pairs=${listStore(answer.store)} />` : html`<p><${State} good=${false}>It does not answer<//></p>`}
      </section></div>
      <${Workers} workers=${answer.workers} />
      <${Problems} problems=${answer.problems} />`}
  </div>`;
}
