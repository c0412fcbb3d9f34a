// Compare: the same history, ranked by each ranker that the service has.
import { html, useEffect } from "./dom.js";
import { Curl, formatMs, ProblemNote, RankedList } from "./ranked_list.js";
import { makeQuestion, useAnswer } from "./try.js";

const RANKERS = {
  model: "The network",
  neighbours: "The most similar histories",
  popular: "What most chose",
};

function Column({ ranker, mine, first, add, nameOf, body }) {
  const { answer, problem, waiting } = mine;
  const theirs = new Set(first?.items.map((item) => item.item_id));
  const note = (item) => html`<span class="note">${theirs.has(item.item_id) ? "shared" : "only here"}</span>`;
  const shared = answer?.items.filter((item) => theirs.has(item.item_id)).length;
  return html`<section class="column" aria-labelledby=${`by-${ranker}`}>
    <header><h2 id=${`by-${ranker}`}>${ranker}</h2>
      ${answer && html`<p class="facts"><b>${formatMs(answer.took_ms)} ms</b>${first && ` · ${shared} of ${answer.count} shared`}</p>`}
    </header>
    <p class="hint">${RANKERS[ranker]}${answer && answer.source !== ranker ? `: nothing to go by, so ${answer.source} items` : ""}</p>
    ${problem && html`<${ProblemNote} problem=${problem} />`}
    <div aria-busy=${waiting}>${answer && !problem && html`<${RankedList} answer=${answer} nameOf=${nameOf} add=${add}
      note=${first && note} label=${`Ranked by ${ranker}`} />`}</div>
    <${Curl} path="recommend" body=${body} />
  </section>`;
}

/** The view: a column for each ranker. */
export function Compare({ user, chosen, attempt, add, nameOf, report, learn }) {
  const itemIds = chosen.map((item) => item.item_id);
  const bodies = Object.keys(RANKERS).map((ranker) => makeQuestion(user, itemIds, { ranker }));
  const answers = bodies.map((body) => useAnswer(body, attempt, report));
  const model = answers[0].answer;
  useEffect(() => answers.forEach(({ answer }) => answer && learn(answer.items)), answers.map(({ answer }) => answer));
  return html`<div class="columns">
    ${Object.keys(RANKERS).map((ranker, index) => html`<${Column} key=${ranker} ranker=${ranker} mine=${answers[index]}
      first=${index === 0 ? null : model} add=${add} nameOf=${nameOf} body=${bodies[index]} />`)}
  </div>`;
}
