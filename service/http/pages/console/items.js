// Items: what the model in use knows of an item.
import { call, getItem } from "./api.js";
import { html, useEffect, useState } from "./dom.js";
import { Facts } from "./parts.js";
import { Search } from "./picker.js";
import { nameItem, ProblemNote } from "./ranked_list.js";

const sayValue = (value) =>
  Array.isArray(value) ? value.map(sayValue).join(", ") : value !== null && typeof value === "object" ? JSON.stringify(value) : String(value);

/** An item with its popularity rank, by the search; by its id alone where the search is off or does not find it. */
async function loadItem(itemId, signal) {
  const found = await call("GET", `items?query=${encodeURIComponent(itemId)}&limit=1`, { signal }).catch((error) => {
    if (error.name === "AbortError" || error.wantsKey) throw error;
    return { items: [] };
  });
  const [item] = found.items;
  return item?.item_id === itemId ? item : getItem(itemId, signal);
}

function Item({ item, add }) {
  const fields = Object.entries(item.metadata ?? {}).map(([name, value]) => [html`<bdi>${name}</bdi>`, html`<bdi>${sayValue(value)}</bdi>`]);
  const tryIt = () => {
    add(item);
    location.hash = "try";
  };
  return html`<section class="panel" aria-labelledby="item">
    <header><h2 id="item"><bdi>${nameItem(item)}</bdi></h2>
      <button type="button" class="quiet" onClick=${tryIt}>Try what follows</button></header>
    <${Facts} pairs=${[
      ["Id", html`<code class="whole">${item.item_id}</code>`],
      ["Popularity", item.popularity_rank ? `rank ${item.popularity_rank.toLocaleString("en")}, 1 is the most popular` : "unknown"],
      ...fields,
    ]} />
    ${fields.length === 0 && html`<p class="hint">The model knows no metadata of it: none was given when it was published.</p>`}
  </section>`;
}

/** The view. `opened` is the item that another view sent here. */
export function Items({ opened, openItem, attempt, add, report }) {
  const [state, setState] = useState({});
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
  }, [itemId, attempt]);
  return html`<div class="panels beside">
    <${Search} add=${openItem} report=${report} />
    <div>
      ${itemId === undefined && html`<section class="panel"><p class="hint">Find an item by its title or id to see what
        is known of it. The view Users leads here, too.</p></section>`}
      ${itemId !== undefined && state.problem && html`<${ProblemNote} problem=${state.problem} />`}
      ${state.item?.item_id === itemId && state.item && html`<${Item} item=${state.item} add=${add} />`}
    </div>
  </div>`;
}
