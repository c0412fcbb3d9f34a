// Try: the list that follows from a history, and how it changes with each click.
import { recommend } from "./api.js";
import { classes, html, useEffect, useState } from "./dom.js";
import { compareRanks, Curl, describeChanges, Fetched, formatMs, ProblemNote, RankedList } from "./ranked_list.js";

/** What is asked: `explain` takes a while beside other traffic, hence more time than the API's default. */
const ASKED = { k: 10, return_metadata: true, explain: true, timeout_ms: 1000 };

/** The rules of a list where nothing was chosen. */
export const NO_RULES = { conditions: [], diversity: 0, cap: { field: "", count: 2 } };
const RULES = { diversity: "diversity", max_per: "cap" }; // by the fields of a request that a bundle may not support

export const EXISTS = "has a value";
/** The node of a filter, by the sign that stands between a field and its value. */
const NODES = {
  "is": (field, value) => ({ field, in: [value] }),
  "is not": (field, value) => ({ not: { field, in: [value] } }),
  "≥": (field, value) => ({ field, gte: value }),
  "≤": (field, value) => ({ field, lte: value }),
  [EXISTS]: (field) => ({ field, exists: true }),
};

export const sayCondition = ({ field, sign, value = "" }) => `${field} ${sign} ${value}`.trim();

/** What was chosen, in a few words. */
function sayRules({ conditions, diversity, cap }) {
  const words = conditions.map(sayCondition);
  if (diversity > 0) words.push(`diversity ${diversity.toFixed(1)}`);
  if (cap.field) words.push(`at most ${cap.count} of each ${cap.field}`);
  return words.join(" · ");
}

/** The fields of a request for what was chosen. */
const writeRules = ({ conditions, diversity, cap }) => ({
  ...(conditions.length > 0 && { filter: { all: conditions.map(({ field, sign, value }) => NODES[sign](field, value)) } }),
  ...(diversity > 0 && { diversity }),
  ...(cap.field && { max_per: cap }),
});

/** The body of POST /recommend for a history: of a stored user, of items, or of both. */
export const makeQuestion = (user, itemIds, more) => ({
  ...(user === null ? { items: itemIds } : { user_id: user, ...(itemIds.length > 0 && { items: itemIds }) }),
  ...ASKED,
  ...more,
});

/** The answer to a question and the one before it, or a problem. The last answer stays until the next one is there. */
export function useAnswer(question, attempt, report) {
  const [state, setState] = useState({ answer: null, last: null, problem: null });
  const [waiting, setWaiting] = useState(true);
  const asked = JSON.stringify(question);
  useEffect(() => {
    const abort = new AbortController();
    setWaiting(true);
    recommend(question, abort.signal).then(
      (answer) => {
        setState(({ answer: last }) => ({ answer, last, problem: null }));
        setWaiting(false);
      },
      (problem) => {
        if (problem.name === "AbortError") return;
        setState(({ answer, last }) => ({ answer, last, problem }));
        setWaiting(false);
        report(problem);
      },
    );
    return () => abort.abort();
  }, [asked, attempt]);
  return { ...state, waiting };
}

/** What a user should know of where a list comes from. */
export function explainAnswer(answer, chosen) {
  const stored = answer.history?.length ?? 0;
  const known = chosen - answer.unknown_item_ids.length + stored;
  const unknown = answer.unknown_item_ids.length;
  if (answer.degraded) return `Degraded (${answer.degraded}): the best that the service could do just now.`;
  if (answer.count === 0) return "No item is left: take a condition away.";
  if (chosen + stored === 0) return "Nothing to go by yet, so these are the most popular items. Click one that you like.";
  if (known === 0) return "The model knows none of these items, so the most popular ones stand in.";
  if (answer.source === "popular") return "The most popular items, whatever the history.";
  if (unknown > 0) return `The model does not know ${unknown} of ${chosen} items; the others made this list.`;
  if (known < 3) return `${known} ${known === 1 ? "item says" : "items say"} little: mostly popularity so far. Click another one.`;
  return "";
}

/** Filter and rules: in words, and where they are changed once that is opened. */
function Rules({ answer, ...shared }) {
  const [opened, setOpened] = useState(false);
  const said = sayRules(shared.rules);
  const allowed = answer?.allowed === undefined ? "" : ` · ${answer.allowed.toLocaleString("en")} allowed`;
  return html`<details class="refine" onToggle=${(event) => event.currentTarget.open && setOpened(true)}>
    <summary>Filter and rules${said && html`: <bdi>${said}</bdi>${allowed}`}</summary>
    ${opened && html`<${Fetched} load=${() => import("./refine.js")} name="Refine" items=${answer?.items ?? []} ...${shared} />`}
  </details>`;
}

/** The view. `attempt` grows when the same should be asked again. */
export function Try({ user, chosen, rules, setRules, attempt, add, nameOf, report, learn }) {
  const question = makeQuestion(user, chosen.map((item) => item.item_id), writeRules(rules));
  const { answer, last, problem, waiting } = useAnswer(question, attempt, report);
  const [missing, setMissing] = useState({});
  const lacks = problem?.errors?.filter(({ code, pointer }) => code === "not_published" && pointer.split("/")[1] in RULES) ?? [];
  useEffect(() => {
    // What the bundle was published without is taken back: the list stays, and the rules say why.
    lacks.forEach(({ pointer, detail }) => {
      const [, field] = pointer.split("/");
      setMissing((known) => ({ ...known, [field]: detail }));
      setRules((now) => ({ ...now, [RULES[field]]: NO_RULES[RULES[field]] }));
    });
  }, [problem]);
  useEffect(() => answer && learn(answer.items), [answer]);
  const changes = answer ? compareRanks(answer.items, last?.items) : new Map();
  const hint = answer && explainAnswer(answer, chosen.length);
  return html`<section class="next" aria-labelledby="next">
    <header><h2 id="next">Next</h2>
      ${answer && html`<p class="facts"><b>${formatMs(answer.took_ms)} ms</b> by ${""}
        <b class=${classes("source", answer.degraded && "degraded")}>${answer.source}</b></p>`}</header>
    <${Rules} answer=${answer} rules=${rules} setRules=${setRules} missing=${missing} attempt=${attempt} report=${report} />
    ${problem && lacks.length === 0 && html`<${ProblemNote} problem=${problem} />`}
    ${hint && html`<p class="hint">${hint}</p>`}
    <div aria-busy=${waiting}>${answer && html`<${RankedList} answer=${answer} changes=${changes} nameOf=${nameOf}
      add=${add} label="Recommended next" />`}</div>
    <p class="unseen" role="status" aria-live="polite">${answer && !waiting && !problem && describeChanges(answer, changes)}</p>
    <${Curl} path="recommend" body=${question} />
  </section>`;
}
