// Models: the versions, how well they do, who answers and who is on trial; and changing that.
import { call } from "./api.js";
import { html, useState } from "./dom.js";
import { Confirm, Facts, State, Table, Time, usePolled } from "./parts.js";
import { ProblemNote } from "./ranked_list.js";

const EVERY_MS = 5000;
const LARGE = 1e6;
const WHY = { name: "why", label: "Why, for the journal", maxlength: 200, autocomplete: "off" };
const SHARE = { name: "share", label: "Share of users in %", type: "number", min: 0, max: 100, step: "any", required: true };

/** What may be done: its title, what happens, the button, and what is asked for. `version` is filled in. */
const CHANGES = {
  promote: ["Promote the candidate?", "It becomes the champion and answers everybody within seconds.", "Promote", [WHY]],
  return: ["Take the candidate off trial?", "The champion answers everybody. What the trial has shown so far is dropped.", "Take off trial", [WHY]],
  rollback: ["Roll back?", "The champion before this one answers again within seconds. A trial ends, and the judge decides nothing more until it is resumed.", "Roll back", [WHY]],
  hold: ["Hold the judge?", "It goes on measuring, but promotes and returns nothing until it is resumed.", "Hold", [WHY]],
  resume: ["Let the judge decide again?", "It promotes a candidate that is better and returns one that is worse.", "Resume", [WHY]],
  share: ["Change the candidate's share?", "So many users are answered by it. 0 is shadow: it is only scored.", "Change share", [SHARE, WHY]],
  use: ["Make this version the champion?", "It answers everybody within seconds.", "Make champion", [WHY]],
  candidate: ["Put this version on trial?", "In shadow: it is scored on live events, and answers nobody. It takes the place of any candidate.", "Put on trial", [WHY]],
};

const load = async (signal) => {
  const [models, report] = await Promise.all(["models", "models/trial"].map((path) => call("GET", path, { signal })));
  return { ...models, ...report };
};

const sayShare = (share) => `${+(100 * share).toFixed(2)} %`;
const sayScore = (score) => (score === null || score === undefined ? "–" : score.toFixed(4));
const sayEvidence = (e) => (e > LARGE ? `over ${LARGE.toLocaleString("en")}` : e.toPrecision(3));
const findMetric = (metrics, name) => Object.entries(metrics ?? {}).find(([key]) => key.toUpperCase() === name)?.[1];

function Live({ scores }) {
  return scores.length === 0 ? "–" : scores.map(({ variant, trials, ndcg_at_10, hr_at_10 }) => html`<div key=${variant}>
    ${sayScore(ndcg_at_10)} · ${sayScore(hr_at_10)} <small>as ${variant}, n = ${trials.toLocaleString("en")}</small></div>`);
}

function Versions({ versions, live, ask }) {
  const rows = versions.toReversed().map(({ version, role, trained_at, item_count, metrics }) => [
    html`<bdi>${version}</bdi>`,
    role === "champion" ? html`<${State} good=${true}>champion<//>` : role ?? "–",
    trained_at ? html`<${Time} at=${trained_at} />` : html`<${State} good=${false}>cannot be read<//>`,
    item_count?.toLocaleString("en") ?? "–",
    `${sayScore(findMetric(metrics, "NDCG@10"))} · ${sayScore(findMetric(metrics, "HR@10"))}`,
    html`<${Live} scores=${live.filter((one) => one.version === version)} />`,
    ask && metrics && role !== "champion" && html`<span class="buttons">
      <button type="button" class="quiet" onClick=${() => ask("use", version)}>Make champion…</button>
      ${role !== "candidate" && html`<button type="button" class="quiet" onClick=${() => ask("candidate", version)}>Put on trial…</button>`}</span>`,
  ]);
  return html`<section class="panel" aria-labelledby="versions"><h2 id="versions">Versions <small>newest first</small></h2>
    <${Table} label="Versions" rows=${rows} head=${["Version", "In use", "Trained", "Items", "NDCG@10 · HR@10 offline", "Live", "Change"]} />
  </section>`;
}

/** What was shown of the candidate, in numbers and in words. */
function Trial({ trial, deployment }) {
  if (!deployment.candidate) return html`<p class="hint">Nobody is on trial. Put a version on trial to score it on live events.</p>`;
  if (!trial) return html`<p class="hint">The judge has scored no event of this trial yet.</p>`;
  const { difference, pairs, min_trials, evidence_better, evidence_worse, proof } = trial;
  const needed = `of ${sayEvidence(proof)} needed`;
  return html`<${Facts} pairs=${[
    ["On trial since", html`<${Time} at=${trial.began_at} />`],
    ["Events that both ranked", `${pairs.toLocaleString("en")}, at least ${min_trials.toLocaleString("en")} before a verdict`],
    ["NDCG@10, candidate less champion", difference
      ? `${difference.mean.toFixed(4)}, between ${difference.low.toFixed(4)} and ${difference.high.toFixed(4)}` : "not known yet"],
    ["Evidence that it is better", `${sayEvidence(evidence_better)} ${needed}`],
    ["Evidence that it is worse", `${sayEvidence(evidence_worse)} ${needed}`],
  ]} />`;
}

function Deployment({ deployment, trial, judge, ask }) {
  const { candidate, mode, share, previous, judged } = deployment;
  const offered = [...(candidate ? ["promote", "share", "return"] : []), ...(previous ? ["rollback"] : []), judged ? "hold" : "resume"];
  return html`<section class="panel" aria-labelledby="deployment"><h2 id="deployment">Who answers</h2>
    <${Facts} pairs=${[
      ["Champion", html`<bdi>${deployment.champion}</bdi>`],
      ["Candidate", candidate ? html`<bdi>${candidate}</bdi>, ${mode === "canary" ? `answers ${sayShare(share)} of users` : "in shadow: it answers nobody"}` : "none"],
      ["Before", previous ? html`<bdi>${previous}</bdi>` : "none: there is nothing to roll back to"],
      ["Verdicts", judged ? "by the judge" : html`<${State} good=${false}>held: only people promote and return<//>`],
      ["Judge", judge ? html`wrote <${Time} at=${judge.at} />, ${judge.lag_s.toFixed(0)} s behind` : "has scored nothing yet"],
      ["Generation", html`${deployment.generation}${deployment.at && html`, <${Time} at=${deployment.at} /> by <bdi>${deployment.by}</bdi>`}`],
    ]} />
    <${Trial} trial=${trial} deployment=${deployment} />
    ${ask && html`<p class="buttons">${offered.map((action) => html`<button key=${action} type="button" class="quiet"
      onClick=${() => ask(action)}>${CHANGES[action][2]}…</button>`)}</p>`}
  </section>`;
}

function Journal({ journal }) {
  const rows = (journal ?? []).map((line) => [
    html`<${Time} at=${line.at} />`, line.generation, html`<bdi>${line.by}</bdi>`, html`<bdi>${line.action}</bdi>`,
    html`<bdi>${line.to}</bdi>`, html`<bdi>${line.why}</bdi>`,
  ]);
  return html`<section class="panel" aria-labelledby="journal"><h2 id="journal">Journal <small>newest first</small></h2>
    ${journal === null && html`<p class="hint">It cannot be read: see nextitem-serve models journal.</p>`}
    ${journal?.length === 0 && html`<p class="hint">Nothing was changed yet.</p>`}
    ${rows.length > 0 && html`<${Table} label="Changes, the newest first" rows=${rows}
      head=${["Time", "Generation", "By", "Action", "To", "Why"]} />`}</section>`;
}

/** The view. */
export function Models(shared) {
  const { answer, problem, again } = usePolled(load, EVERY_MS, shared);
  const [asked, setAsked] = useState(null);
  const [readOnly, setReadOnly] = useState(null);
  if (problem?.status === 404) {
    return html`<section class="panel"><p class="hint">This service serves one bundle, and no folder of versions: there is
      nothing to change here. Start it with --bundle FOLDER, where FOLDER holds the versions.</p></section>`;
  }
  const ask = readOnly ? null : (action, version) => setAsked({ action, version, deployment: answer.deployment });
  const act = async ({ why, share }) => {
    const body = { why, if_generation: asked.deployment.generation };
    if (asked.version) body.version = asked.version;
    if (share !== undefined) body.share = Number(share) / 100;
    try {
      await call("POST", `models/${asked.action}`, { body });
    } catch (error) {
      if (error.type.endsWith(":read-only")) setReadOnly(error);
      throw error;
    } finally {
      again();
    }
  };
  const [title, text, button, fields] = asked ? CHANGES[asked.action] : [];
  const given = fields?.map((field) => (field === SHARE ? { ...field, value: String(+(100 * asked.deployment.share).toFixed(4)) } : field));
  return html`<div class="panels">
    ${problem && html`<${ProblemNote} problem=${problem} />`}
    ${readOnly && html`<${ProblemNote} problem=${readOnly} />`}
    ${answer && html`<${Deployment} ...${answer} ask=${ask} /><${Versions} ...${answer} ask=${ask} /><${Journal} ...${answer} />`}
    ${asked && html`<${Confirm} title=${title} text=${html`${asked.version && html`<bdi>${asked.version}</bdi>: `}${text}`}
      button=${button} fields=${given} act=${act} done=${() => setAsked(null)} />`}
  </div>`;
}
