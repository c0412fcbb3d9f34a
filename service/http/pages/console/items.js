// Items: what is known of an item, whether it may be recommended, and which items are like it.
import { call, getItem } from "./api.js";
import { html, useEffect, useState } from "./dom.js";
import { Confirm, Facts } from "./parts.js";
import { Search } from "./picker.js";
import { Curl, formatMs, nameItem, ProblemNote, RankedList } from "./ranked_list.js";

const WAYS = {
  taste: ["Liked alike", "Their rows in the model point the same way"],
  next: ["Chosen next", "What the model ranks after this item alone"],
};

const sayValue = (value) =>
  Array.isArray(value) ? value.map(sayValue).join(", ") : value !== null && typeof value === "object" ? JSON.stringify(value) : String(value);

const path = (itemId) => `items/${encodeURIComponent(itemId)}`;

/** An item with its popularity rank, by the search; by its id alone where the search is off or does not find it. */
async function loadItem(itemId, signal) {
  const found = await call("GET", `items?query=${encodeURIComponent(itemId)}&limit=1`, { signal }).catch((error) => {
    if (error.name === "AbortError" || error.wantsKey) throw error;
    return { items: [] };
  });
  const [item] = found.items;
  return item?.item_id === itemId ? { ...item, catalogue: found.catalogue } : getItem(itemId, signal);
}

/** Whether lists may have the item: a switch that asks first. Until the catalogue's first change all items are available. */
function Availability({ item, changed }) {
  const [asking, setAsking] = useState(false);
  const available = item.available ?? true;
  const body = { available: !available };
  const [title, text, button] = available
    ? ["Take it out of every list?", "From the next answer on nobody is recommended it. It still counts in histories.", "Take it out"]
    : ["Bring it back?", "From the next answer on it may be recommended again.", "Bring it back"];
  return html`<div>
    <button type="button" class="quiet" role="switch" aria-checked=${available} onClick=${() => setAsking(true)}>
      <span class=${available ? "good" : "wrong"} aria-hidden="true">${available ? "●" : "○"}</span> Available</button>
    <p class="hint">${available ? "" : "No list has it. "}${item.catalogue && `Catalogue version ${item.catalogue.version.toLocaleString("en")}${
      item.catalogue.behind ? ", or a later one" : ""}.`}</p>
    <${Curl} path=${path(item.item_id)} body=${body} method="PATCH" />
    ${asking && html`<${Confirm} title=${title} button=${button} done=${() => setAsking(false)}
      text=${html`<bdi>${nameItem(item)}</bdi>: ${text} The key needs the scope catalogue.`}
      act=${() => call("PATCH", path(item.item_id), { body }).then(changed)} />`}
  </div>`;
}

function Item({ item, add, changed }) {
  const fields = Object.entries(item.metadata ?? {}).map(([name, value]) => [html`<bdi>${name}</bdi>`, html`<bdi>${sayValue(value) || "–"}</bdi>`]);
  const tryIt = () => {
    add(item);
    location.hash = "try";
  };
  return html`<section class="panel" aria-labelledby="item">
    <header><h2 id="item" tabindex="-1"><bdi>${nameItem(item)}</bdi>${item.recommendable === false && html` <span class="badge">new since the model</span>`}</h2>
      <button type="button" class="quiet" onClick=${tryIt}>Try what follows</button></header>
    <${Facts} pairs=${[
      ["Id", html`<code class="whole">${item.item_id}</code>`],
      ["Popularity", item.popularity_rank ? `rank ${item.popularity_rank.toLocaleString("en")}, 1 is the most popular` : "unknown"],
      ...fields,
    ]} />
    ${fields.length === 0 && html`<p class="hint">No metadata of it is known: none was given when the model was published, or since.</p>`}
    <${Availability} item=${item} changed=${changed} />
  </section>`;
}

/** Items like one, by one way to find them. */
function Similar({ itemId, by, version, attempt, openItem, report, learn }) {
  const [state, setState] = useState({});
  const [title, hint] = WAYS[by];
  const body = { item_ids: [itemId], by, k: 10, return_metadata: true, timeout_ms: 1000 };
  useEffect(() => {
    const abort = new AbortController();
    call("POST", "similar", { body, signal: abort.signal }).then(
      (answer) => {
        setState({ answer });
        learn(answer.items);
      },
      (problem) => {
        if (problem.name === "AbortError") return;
        setState({ problem });
        report(problem);
      },
    );
    return () => abort.abort();
  }, [itemId, version, attempt]);
  const { answer, problem } = state;
  const lacks = problem?.errors?.some(({ code }) => code === "not_published");
  return html`<section class="panel" aria-labelledby=${`by-${by}`}>
    <header><h2 id=${`by-${by}`}>${title}</h2>${answer && html`<p class="facts"><b>${formatMs(answer.took_ms)} ms</b> by <b>${answer.source}</b></p>`}</header>
    <p class="hint">${hint}.</p>
    ${lacks && html`<p class="hint">This bundle cannot tell: publish it with --similar.</p>`}
    ${problem && !lacks && html`<${ProblemNote} problem=${problem} />`}
    ${answer?.degraded && html`<p class="hint">Degraded (${answer.degraded}): ${answer.source} items stand in.</p>`}
    ${answer && html`<${RankedList} answer=${answer} add=${openItem} why=${false} label=${title} hint="Open the item" />`}
    <${Curl} path="similar" body=${body} />
  </section>`;
}

/** The view. `opened` is the item that another view sent here. */
export function Items({ opened, openItem, attempt, add, report, learn }) {
  const [state, setState] = useState({});
  const [changes, setChanges] = useState(0);
  const itemId = opened?.item_id;
  useEffect(() => {
    if (itemId === undefined) return undefined;
    const abort = new AbortController();
    const onProblem = (problem) => {
      if (problem.name === "AbortError") return;
      setState({ problem });
      report(problem);
    };
    loadItem(itemId, abort.signal).then((item) => setState({ item }), onProblem);
    return () => abort.abort();
  }, [itemId, attempt, changes]);
  const item = state.item?.item_id === itemId ? state.item : undefined;
  useEffect(() => {
    // The list whose button opened the item is gone, and the button had the focus.
    if (item && document.activeElement === document.body) document.getElementById("item").focus();
  }, [item]);
  return html`<div class="panels beside">
    <${Search} add=${openItem} report=${report} />
    <div class="panels">
      ${itemId === undefined && html`<section class="panel"><p class="hint">Find an item by its title or id to see what
        is known of it. The view Users leads here, too.</p></section>`}
      ${itemId !== undefined && state.problem && html`<${ProblemNote} problem=${state.problem} />`}
      ${item && html`<${Item} item=${item} add=${add} changed=${() => setChanges(changes + 1)} />`}
      ${item?.recommendable === false && html`<p class="hint">The model does not know it yet, so no list has it, and none is like it:
        the next model that is published with it does.</p>`}
      ${item && item.recommendable !== false && html`<div class="panels halves">${Object.keys(WAYS).map((by) => html`<${Similar} key=${`${by} ${itemId}`}
        itemId=${itemId} by=${by} version=${item.catalogue?.version} attempt=${attempt} openItem=${openItem} report=${report} learn=${learn} />`)}</div>`}
    </div>
  </div>`;
}
