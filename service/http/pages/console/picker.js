// The left side: find items, what was chosen, or a user's stored history in its place.
import { getHistory, getItem, searchItems } from "./api.js";
import { html, useEffect, useRef, useState } from "./dom.js";
import { Details, nameItem, ProblemNote, Title } from "./ranked_list.js";

const PAUSE_MS = 120; // between keys: whoever types fast asks once
const RETRY_MS = 1000;
export const SHOWN_EVENTS = 20;

/** A combobox (ARIA 1.2): letters search, arrows choose, Enter adds, Escape closes. */
export function Search({ add, report }) {
  const [query, setQuery] = useState("");
  const [found, setFound] = useState(null);
  const [active, setActive] = useState(0);
  const [open, setOpen] = useState(false);
  const [problem, setProblem] = useState(null);
  const input = useRef(null);

  useEffect(() => {
    const wanted = query.trim();
    setProblem(null);
    if (!wanted) return setFound(null);
    const abort = new AbortController();
    let timer;
    const ask = async () => {
      try {
        setFound(await searchItems(wanted, abort.signal));
        setActive(0);
        setProblem(null);
      } catch (error) {
        if (error.name === "AbortError") return;
        setFound(null);
        setProblem(error);
        report(error);
        if (error.passes) timer = setTimeout(ask, RETRY_MS);
      }
    };
    timer = setTimeout(ask, PAUSE_MS);
    return () => {
      clearTimeout(timer);
      abort.abort();
    };
  }, [query]);

  useEffect(() => focusOnSlash(input), []);
  const items = open && found ? found.items : [];
  useEffect(() => {
    document.getElementById(`found-${active}`)?.scrollIntoView({ block: "nearest" });
  }, [active]);

  const choose = (item) => {
    add(item);
    setQuery("");
    setOpen(false);
    input.current.focus();
  };
  const onKeyDown = (event) => {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (step && items.length) setActive((active + step + items.length) % items.length);
    else if (step) setOpen(true);
    else if (event.key === "Enter" && items[active]) choose(items[active]);
    else if (event.key === "Escape" && items.length) setOpen(false);
    else return;
    event.preventDefault();
  };
  const said = !found || !open ? "" : found.items.length ? `${found.items.length} found` : "Nothing found";
  return html`<div class="search">
    <label for="search">Find an item</label>
    <div class="field">
      <input id="search" ref=${input} type="text" role="combobox" autocomplete="off" spellcheck=${false} maxlength="100"
        placeholder="Type a title" aria-expanded=${items.length > 0} aria-controls="found" aria-autocomplete="list"
        aria-activedescendant=${items.length ? `found-${active}` : null} aria-keyshortcuts="/" value=${query}
        onInput=${(event) => { setQuery(event.target.value); setOpen(true); }} onKeyDown=${onKeyDown}
        onFocus=${() => setOpen(true)} onBlur=${() => setOpen(false)} />
      <kbd aria-hidden="true">/</kbd>
    </div>
    <ul id="found" role="listbox" aria-label="Items found" hidden=${!items.length}>
      ${items.map((item, index) => html`<li key=${item.item_id} id=${`found-${index}`} role="option"
          aria-selected=${index === active} onMouseDown=${(event) => { event.preventDefault(); choose(item); }}
          onMouseMove=${() => setActive(index)}>
        <${Title} item=${item} /><${Details} item=${item} /></li>`)}
    </ul>
    <p class="said" role="status">${said}${said && found.more ? ": type more letters to see the others" : ""}</p>
    ${problem && !problem.wantsKey && html`<${ProblemNote} problem=${problem} />`}
  </div>`;
}

function focusOnSlash(input) {
  const onKey = (event) => {
    const typing = event.target.closest("input, textarea, select, [contenteditable]");
    if (event.key !== "/" || typing || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    input.current.focus();
  };
  document.addEventListener("keydown", onKey);
  return () => document.removeEventListener("keydown", onKey);
}

/** After what had the focus has left the page: it goes to what a selector names, once that is there. */
const passFocus = (selector) => requestAnimationFrame(() => document.querySelector(selector)?.focus());

/** After a button of a list was pressed and has left it: the focus goes to the next one, or to what is named. */
export function keepFocus(list, index, otherwise) {
  requestAnimationFrame(() => {
    const left = list.current?.querySelectorAll("button") ?? [];
    (left[Math.min(index, left.length - 1)] ?? document.querySelector(otherwise))?.focus();
  });
}

/** What was chosen here, oldest first; each item can be taken out again. */
export function Chosen({ items, remove, clear, stored }) {
  const list = useRef(null);
  const takeOut = (index) => {
    remove(index);
    keepFocus(list, index, "#search");
  };
  const clearAll = () => {
    clear();
    passFocus("#search");
  };
  return html`<section class="chosen" aria-labelledby="chosen">
    <header><h2 id="chosen">${stored ? "And then" : "What you did"} <small>oldest first</small></h2>
      ${items.length > 0 && html`<button type="button" class="quiet" onClick=${clearAll}>Clear</button>`}</header>
    ${items.length === 0 && html`<p class="hint">${
      stored ? "Add items to see what would come after them." : "Nothing yet. Find an item above, or click one in the list."
    }</p>`}
    <ol ref=${list}>
      ${items.map((item, index) => html`<li key=${item.item_id}><${Title} item=${item} />
        <button type="button" class="remove" aria-label=${`Remove ${nameItem(item)}`}
          onClick=${() => takeOut(index)}>✕</button></li>`)}
    </ol>
  </section>`;
}

/** Takes a stored user's history in place of an empty one. Nothing is stored by looking. */
export function StoredUser({ user, setUser, attempt, learn, report }) {
  const [given, setGiven] = useState("");
  const [events, setEvents] = useState(null);
  const [refused, setRefused] = useState(null);
  useEffect(() => {
    setEvents(null);
    setRefused(null);
    if (user === null) return undefined;
    const abort = new AbortController();
    const show = (loaded) => {
      learn(loaded);
      setEvents(loaded);
    };
    loadEvents(user, abort.signal).then(show, (error) => {
      if (error.name === "AbortError") return;
      setRefused(error);
      if (error.status === 401) report(error);
    });
    return () => abort.abort();
  }, [user, attempt]);
  const onSubmit = (event) => {
    event.preventDefault();
    if (!given) return;
    setUser(given);
    passFocus(".stored button");
  };
  const leave = () => {
    setUser(null);
    passFocus("#user");
  };
  if (user === null) {
    return html`<form class="user" onSubmit=${onSubmit}>
      <label for="user">Or begin with a user's stored history</label>
      <div class="field"><input id="user" type="text" autocomplete="off" spellcheck=${false} maxlength="256"
        placeholder="User id" value=${given} onInput=${(event) => setGiven(event.target.value)} />
        <button type="submit" disabled=${!given}>Show</button></div>
    </form>`;
  }
  const shown = events?.slice(-SHOWN_EVENTS) ?? [];
  return html`<section class="stored" aria-labelledby="stored">
    <header><h2 id="stored">Stored: <bdi>${user}</bdi> ${events && html`<small>${countEvents(events.length)}</small>`}</h2>
      <button type="button" class="quiet" onClick=${leave}>Leave</button></header>
    ${events?.length === 0 && html`<p class="hint">Nothing is stored of this user. POST /events stores what users do.</p>`}
    ${refused && html`<p class="hint">The history itself is not shown (${refused.title}). Recommendations need no more than
      the scope recommend.</p>`}
    ${events?.length > shown.length && html`<p class="hint">The newest ${shown.length}:</p>`}
    <ol>${shown.map((event) => html`<li key=${event.event_id}><${Title} item=${event} />
      <span class="kind">${event.type}</span></li>`)}</ol>
  </section>`;
}

export const countEvents = (count) => `${count.toLocaleString("en")} ${count === 1 ? "event" : "events"}`;

/** The events of a user; the newest with their items' metadata. */
export async function loadEvents(user, signal) {
  const { events } = await getHistory(user, signal);
  const newest = await Promise.all(
    events.slice(-SHOWN_EVENTS).map(async (event) => {
      // An item that this model does not know has no metadata: its id will do.
      const item = await getItem(event.item_id, signal).catch((error) => {
        if (error.name === "AbortError") throw error;
        return null;
      });
      return { ...event, metadata: item?.metadata };
    }),
  );
  return [...events.slice(0, -SHOWN_EVENTS), ...newest];
}
