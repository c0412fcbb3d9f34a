// Compare: the same history, ranked by each ranker that the service has.
import { call } from "./api.js";
import { html, useEffect, useState } from "./dom.js";
import { Curl, formatMs, ProblemNote, RankedList } from "./ranked_list.js";
import { makeQuestion, useAnswer } from "./try.js";

const RANKERS = {
  model: "The network",
  neighbours: "The most similar histories",
  rules: "What came after these items before",
  popular: "What most chose",
};
const ALWAYS = ["model", "neighbours", "popular"]; // where the service does not list them

/** The words that the service takes, and the versions beside the champion, which `model` stands for. */
function list(rankers) {
  const words = rankers.filter((ranker) => Object.hasOwn(RANKERS, ranker));
  const [, ...versions] = rankers.filter((ranker) => ranker !== "auto" && !Object.hasOwn(RANKERS, ranker));
  return [...words, ...versions];
}

/** What may be asked, and once it is known which columns are shown: versions want another scope, so they are asked for. */
function useRankers(attempt, report) {
  const [offered, setOffered] = useState(null);
  useEffect(() => {
    const abort = new AbortController();
    call("GET", "model", { signal: abort.signal }).then(
      ({ rankers }) => setOffered(rankers ? list(rankers) : ALWAYS),
      (problem) => {
        if (problem.name === "AbortError") return;
        setOffered(ALWAYS);
        report(problem);
      },
    );
    return () => abort.abort();
  }, [attempt]);
  return offered;
}

function Column({ ranker, place, model, tell, user, itemIds, attempt, report, learn, add, nameOf }) {
  const body = makeQuestion(user, itemIds, { ranker });
  const { answer, problem, waiting } = useAnswer(body, attempt, report);
  useEffect(() => {
    if (answer) learn(answer.items);
    if (ranker === "model") tell(answer);
  }, [answer]);
  const theirs = ranker === "model" || !model ? null : new Set(model.items.map((item) => item.item_id));
  const note = (item) => html`<span class="note">${theirs.has(item.item_id) ? "shared" : "only here"}</span>`;
  const shared = theirs && answer?.items.filter((item) => theirs.has(item.item_id)).length;
  const source = Object.hasOwn(RANKERS, ranker) ? ranker : "model";
  const lacks = problem?.errors?.some(({ code }) => code === "unknown_ranker");
  return html`<section class="column" aria-labelledby=${`by-${place}`}>
    <header><h2 id=${`by-${place}`}><bdi>${ranker}</bdi></h2>
      ${answer && html`<p class="facts"><b>${formatMs(answer.took_ms)} ms</b>${theirs && ` · ${shared} of ${answer.count} shared`}</p>`}
    </header>
    <p class="hint">${source === ranker ? RANKERS[ranker] : "This version"}${answer && answer.source !== source ? `: nothing to go by, so ${answer.source} items` : ""}</p>
    ${lacks && html`<p class="hint">Not here: the bundle was published without it, or this version is not loaded any more.</p>`}
    ${problem && !lacks && html`<${ProblemNote} problem=${problem} />`}
    <div aria-busy=${waiting}>${answer && !problem && html`<${RankedList} answer=${answer} nameOf=${nameOf} add=${add}
      note=${theirs ? note : undefined} label=${`Ranked by ${ranker}`} />`}</div>
    <${Curl} path="recommend" body=${body} />
  </section>`;
}

/** The view: a column for each ranker that is ticked. */
export function Compare({ chosen, ...shared }) {
  const offered = useRankers(shared.attempt, shared.report);
  const [ticked, setTicked] = useState({});
  const [model, setModel] = useState(null);
  const itemIds = chosen.map((item) => item.item_id);
  const isShown = (ranker) => ticked[ranker] ?? Object.hasOwn(RANKERS, ranker);
  const shown = offered?.filter(isShown) ?? [];
  return html`<div>
    <div class="side" role="group" aria-label="Side by side">${offered?.map((ranker) => html`<label key=${ranker} class="tick">
      <input type="checkbox" checked=${isShown(ranker)} onChange=${(event) => setTicked({ ...ticked, [ranker]: event.target.checked })} />
      <bdi>${ranker}</bdi></label>`)}</div>
    <div class="columns">${shown.map((ranker) => html`<${Column} key=${ranker} ranker=${ranker} place=${offered.indexOf(ranker)}
      model=${shown.includes("model") ? model : null} tell=${setModel} itemIds=${itemIds} ...${shared} />`)}</div>
  </div>`;
}
