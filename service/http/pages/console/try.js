// Try: the list that follows from a history, and how it changes with each click.
import { recommend } from "./api.js";
import { classes, html, useEffect, useState } from "./dom.js";
import { compareRanks, Curl, describeChanges, formatMs, ProblemNote, RankedList } from "./ranked_list.js";

/** What is asked: `explain` takes a while beside other traffic, hence more time than the API's default. */
const ASKED = { k: 10, return_metadata: true, explain: true, timeout_ms: 1000 };

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
  if (chosen + stored === 0) return "Nothing to go by yet, so these are the most popular items. Click one that you like.";
  if (known === 0) return "The model knows none of these items, so the most popular ones stand in.";
  if (answer.source === "popular") return "The most popular items, whatever the history.";
  if (unknown > 0) return `The model does not know ${unknown} of ${chosen} items; the others made this list.`;
  if (known < 3) return `${known} ${known === 1 ? "item says" : "items say"} little: mostly popularity so far. Click another one.`;
  return "";
}

/** The view. `attempt` grows when the same should be asked again. */
export function Try({ user, chosen, attempt, add, nameOf, report, learn }) {
  const question = makeQuestion(user, chosen.map((item) => item.item_id));
  const { answer, last, problem, waiting } = useAnswer(question, attempt, report);
  useEffect(() => answer && learn(answer.items), [answer]);
  const changes = answer ? compareRanks(answer.items, last?.items) : new Map();
  const hint = answer && explainAnswer(answer, chosen.length);
  return html`<section class="next" aria-labelledby="next">
    <header><h2 id="next">Next</h2>
      ${answer && html`<p class="facts"><b>${formatMs(answer.took_ms)} ms</b> by ${""}
        <b class=${classes("source", answer.degraded && "degraded")}>${answer.source}</b></p>`}</header>
    ${problem && html`<${ProblemNote} problem=${problem} />`}
    ${hint && html`<p class="hint">${hint}</p>`}
    <div aria-busy=${waiting}>${answer && html`<${RankedList} answer=${answer} changes=${changes} nameOf=${nameOf}
      add=${add} label="Recommended next" />`}</div>
    <p class="unseen" role="status" aria-live="polite">${answer && !waiting && !problem && describeChanges(answer, changes)}</p>
    <${Curl} path="recommend" body=${question} />
  </section>`;
}
