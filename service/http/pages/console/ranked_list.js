// A ranked list: what changed since the last one, and why each item is in it. And how items and problems are shown.
import { describeAsCurl } from "./api.js";
import { classes, html, useEffect, useLayoutEffect, useMemo, useRef, useState } from "./dom.js";

const DETAILS = 3;
const MOVE = { duration: 280, easing: "cubic-bezier(.2, 0, 0, 1)" };

const RELOAD = { title: "This view cannot be loaded", detail: "Load the page again: the service may have been updated." };

export const isText = (value) => (typeof value === "string" && value !== "") || typeof value === "number";

/** An item's title, or its id where it has none. */
export function nameItem(item) {
  const { title, name } = item.metadata ?? {};
  return String([title, name].find(isText) ?? item.item_id);
}

/** As text, whatever it holds; its direction does not spread to what stands beside it. */
export const Title = ({ item }) => html`<bdi class="title">${nameItem(item)}</bdi>`;

/** A few more words of an item's metadata. */
export function Details({ item }) {
  const words = Object.entries(item.metadata ?? {})
    .filter(([field]) => field !== "title" && field !== "name")
    .map(([, value]) => (Array.isArray(value) ? value.filter(isText).slice(0, 3).join(", ") : value))
    .filter(isText)
    .slice(0, DETAILS);
  return words.length > 0 && html`<bdi class="details">${words.join(" · ")}</bdi>`;
}

/** An error, as the service tells it. */
export function ProblemNote({ problem }) {
  return html`<div class="problem" role="alert">
    <strong>${problem.title}</strong>
    ${problem.detail && html`<p>${problem.detail}</p>`}
    ${problem.errors?.map(({ pointer, detail }) => html`<p><code>${pointer}</code> ${detail}</p>`)}
    ${problem.requestId && html`<p class="hint">Request id <code>${problem.requestId}</code></p>`}
  </div>`;
}

/** The component `name` of a module that `load` imports once this is shown; the rest goes to it. */
export function Fetched({ load, name, ...shared }) {
  const [view, setView] = useState(null);
  const [failed, setFailed] = useState(false);
  useEffect(() => {
    load().then((module) => setView(() => module[name]), () => setFailed(true));
  }, []);
  return failed ? html`<${ProblemNote} problem=${RELOAD} />` : view && html`<${view} ...${shared} />`;
}

/** How an answer differs from the last one, by item: its rank then, or null for a new one. `last` may be null. */
export function compareRanks(items, last) {
  if (!last) return new Map();
  const ranks = new Map(last.map((item) => [item.item_id, item.rank]));
  return new Map(items.map((item) => [item.item_id, ranks.get(item.item_id) ?? null]));
}

/** The changes in words, for who does not see them. */
export function describeChanges(answer, changes) {
  const took = `${formatMs(answer.took_ms)} ms${answer.allowed === undefined ? "" : `, ${answer.allowed} allowed`}`;
  if (changes.size === 0) return `${answer.count} items, ${took}`;
  const fresh = answer.items.filter((item) => changes.get(item.item_id) === null).length;
  const moved = answer.items.filter((item) => ![null, item.rank].includes(changes.get(item.item_id))).length;
  return `${fresh} new, ${moved} moved, ${took}`;
}

export const formatMs = (ms) => ms.toFixed(ms < 100 ? 1 : 0);

/** A sign and the same in words: colour alone says nothing. */
function Change({ before, rank, known }) {
  if (!known || before === rank) return html`<span class="change"></span>`;
  if (before === null) return html`<span class="change new">NEW</span>`;
  const up = before > rank;
  return html`<span class=${classes("change", up ? "up" : "down")}>
    <span aria-hidden="true">${up ? "▲" : "▼"}${Math.abs(before - rank)}</span>
    <span class="unseen">${up ? "up" : "down"} ${Math.abs(before - rank)}</span></span>`;
}

/** Why an item is in the list: what of the history lifted it, and by how much. */
function Why({ item, source, explained, nameOf }) {
  const reasons = item.reasons ?? [];
  const signed = (weight) => `${weight < 0 ? "−" : "+"}${Number(Math.abs(weight).toPrecision(2))}`;
  return html`<details class="why">
    <summary>${reasons.length ? html`<span>because of </span>${reasons.map(({ item_id }, index) => html`${index > 0 && " · "}<bdi>${nameOf(item_id)}</bdi>`)}` : "why"}</summary>
    ${reasons.length > 0 && html`<table><tbody>${reasons.map(({ item_id, weight }) => html`<tr>
      <td><bdi>${nameOf(item_id)}</bdi></td><td class="number">${signed(weight)}</td></tr>`)}</tbody></table>
      <p class="hint">Without that item its score of ${item.score.toFixed(2)} would be so much lower.</p>`}
    ${reasons.length === 0 && html`<p class="hint">${explainNothing(source, explained)}</p>`}
  </details>`;
}

function explainNothing(source, explained) {
  if (source === "popular") return "It is popular: the score counts how often it was chosen, by anybody.";
  if (source === "neighbours") return "Users with a history like this one chose it.";
  if (explained === null || explained === undefined) return "Not known: there was no time left, or the model was published before it could tell.";
  return "No single item of the history lifted it: all of them together did.";
}

/** The request behind a list, to be sent from a shell. */
export function Curl({ path, body, method }) {
  const [copied, setCopied] = useState("");
  const command = useMemo(() => describeAsCurl(path, body, method), [path, body, method]);
  const code = useRef(null);
  const copy = async () => {
    try {
      await navigator.clipboard.writeText(command);
      setCopied("Copied");
    } catch {
      // Pages of plain HTTP elsewhere than on this machine have no clipboard: the text is selected instead.
      getSelection().selectAllChildren(code.current);
      setCopied("Selected: press Ctrl+C");
    }
  };
  return html`<details class="curl"><summary>request as curl</summary>
    <pre><code ref=${code}>${command}</code></pre>
    <p><button type="button" onClick=${copy}>Copy</button> <span role="status">${copied}</span></p></details>`;
}

/** The places of a list's items, from its top. */
const measure = (list) => new Map([...list.children].map((entry) => [entry.dataset.item, entry.offsetTop]));

/** Let the items go from where they were to where they are, unless the user wants no motion. */
function move(list, from) {
  if (from.size === 0 || matchMedia("(prefers-reduced-motion: reduce)").matches) return;
  for (const entry of list.children) {
    const before = from.get(entry.dataset.item);
    const transform = before === undefined ? "translateX(1.5rem)" : `translateY(${before - entry.offsetTop}px)`;
    if (before === entry.offsetTop) continue;
    entry.animate([{ transform, opacity: before === undefined ? 0 : 1 }, { transform: "none", opacity: 1 }], MOVE);
  }
}

/** The items of an answer. `add` takes the one that is clicked; `note` says something beside an item; `why`, if not
false, says what of the history lifted it. */
export function RankedList({ answer, changes = new Map(), nameOf, add, note, label, why = true, hint = "Add it to the history" }) {
  const list = useRef(null);
  const clicked = useRef(null);
  const from = list.current ? measure(list.current) : new Map();
  const scores = answer.items.map((item) => item.score);
  const lowest = Math.min(...scores);
  const spread = Math.max(...scores) - lowest || 1;
  useLayoutEffect(() => {
    move(list.current, from);
    if (clicked.current !== null && !list.current.contains(document.activeElement)) {
      // The item that had the focus has left the list.
      list.current.children[clicked.current]?.querySelector("button").focus({ preventScroll: true });
    }
    clicked.current = null;
  }, [answer]);
  const choose = (item, index) => {
    clicked.current = index;
    add(item);
  };
  return html`<ol class="ranked" ref=${list} aria-label=${label}>
    ${answer.items.map((item, index) => html`<li key=${item.item_id} data-item=${item.item_id}>
      <span class="rank">${item.rank}</span>
      <${Change} before=${changes.get(item.item_id)} rank=${item.rank} known=${changes.size > 0} />
      <div class="what">
        <button type="button" class="pick" onClick=${() => choose(item, index)}
          title=${hint}><${Title} item=${item} /></button>
        <${Details} item=${item} />
        ${why && html`<${Why} item=${item} source=${answer.source} explained=${answer.explained} nameOf=${nameOf} />`}
      </div>
      <div class="score"><span>${item.score.toFixed(answer.source === "popular" ? 0 : 2)}</span>
        <span class="bar" aria-hidden="true"><i style=${{ transform: `scaleX(${0.08 + (0.92 * (item.score - lowest)) / spread})` }}></i></span>
        ${note?.(item)}</div>
    </li>`)}
  </ol>`;
}
