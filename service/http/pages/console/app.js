// The console: views of one service. All that it knows comes from the public API.
import { hasKey, setKey } from "./api.js";
import { classes, html, render, useCallback, useEffect, useRef, useState } from "./dom.js";
import { Chosen, Search, StoredUser } from "./picker.js";
import { Fetched, nameItem } from "./ranked_list.js";
import { NO_RULES, Try } from "./try.js";

const VIEWS = {
  try: "Try", compare: "Compare", users: "Users", items: "Items", models: "Models", live: "Live", health: "Health",
};
/** Every view but Try is fetched when it is first looked at. Each exports a component of the view's name. */
const MODULES = {
  compare: () => import("./compare.js"),
  users: () => import("./users.js"),
  items: () => import("./items.js"),
  models: () => import("./models.js"),
  live: () => import("./live.js"),
  health: () => import("./health.js"),
};
const PICKED = ["try", "compare"]; // the views of what was picked

/** The view that the page's fragment names. Nothing else is ever put into the address. */
function useView() {
  const read = () => (location.hash.slice(1) in VIEWS ? location.hash.slice(1) : "try");
  const [view, setView] = useState(read);
  useEffect(() => {
    const onChange = () => setView(read());
    addEventListener("hashchange", onChange);
    return () => removeEventListener("hashchange", onChange);
  }, []);
  return view;
}

/** Asks for an API key, which stays in this page's memory, or in the tab's storage where that is ticked. */
function KeyForm({ problem, done }) {
  const input = useRef(null);
  const keep = useRef(null);
  useEffect(() => input.current.focus(), []);
  const onSubmit = (event) => {
    event.preventDefault();
    setKey(input.current.value, keep.current.checked);
    done();
  };
  const forget = () => {
    setKey("");
    done();
  };
  return html`<form class="key" aria-labelledby="key-label" onSubmit=${onSubmit}>
    <p role="alert">${problem && html`<strong>${problem.title}.</strong> ${problem.detail}`}</p>
    <label id="key-label" for="key">API key</label>
    <div class="field"><input id="key" ref=${input} type="password" autocomplete="off" spellcheck=${false} placeholder="nk_…" />
      <button type="submit">Use</button>
      ${hasKey() && html`<button type="button" class="quiet" onClick=${forget}>Forget</button>`}</div>
    <label class="tick"><input ref=${keep} type="checkbox" /> Keep it until this tab is closed</label>
    <p class="hint">Else it is gone when the page is loaded anew. It is never in an address, a cookie or a file.</p>
  </form>`;
}

function Console() {
  const view = useView();
  const [chosen, setChosen] = useState([]);
  const [user, setUser] = useState(null);
  const [rules, setRules] = useState(NO_RULES);
  const [attempt, setAttempt] = useState(0);
  const [keyProblem, setKeyProblem] = useState(undefined); // undefined: no form; null: asked for by the user
  const [opened, setOpened] = useState(null);
  const main = useRef(null);
  const shown = useRef(false);
  const known = useRef(new Map());
  const [, setLearned] = useState(0);

  const learn = useCallback((items) => {
    const fresh = items.filter((item) => item.metadata && !known.current.has(item.item_id));
    fresh.forEach((item) => known.current.set(item.item_id, item));
    if (fresh.length > 0) setLearned((count) => count + fresh.length); // names may stand where ids stood
  }, []);
  const nameOf = useCallback((itemId) => nameItem(known.current.get(itemId) ?? { item_id: itemId }), []);
  const add = useCallback((item) => {
    learn([item]);
    // Chosen again, it is the newest.
    setChosen((items) => [...items.filter(({ item_id }) => item_id !== item.item_id), item]);
  }, []);
  const report = useCallback((problem) => problem.wantsKey && setKeyProblem(problem), []);
  const keyDone = () => {
    setKeyProblem(undefined);
    setAttempt((count) => count + 1);
  };
  const openItem = useCallback((item) => {
    setOpened(item);
    location.hash = "items";
  }, []);
  useEffect(() => {
    // What had the focus is gone, with the view that it was in or with the form for a key: keys go on from this view.
    if (shown.current && document.activeElement === document.body) main.current.focus();
    shown.current = true;
  }, [view, keyProblem]);
  // A key that does for this view may not do for another one.
  useEffect(() => setKeyProblem((problem) => (problem?.status === 403 ? undefined : problem)), [view]);
  const shared = { user, chosen, rules, setRules, attempt, add, nameOf, report, learn, opened, openItem };
  return html`
    <header class="top">
      <h1>nextitem</h1>
      <nav aria-label="Views">${Object.entries(VIEWS).map(([name, label]) => html`<a key=${name} href=${`#${name}`}
        aria-current=${name === view ? "page" : null}>${label}</a>`)}</nav>
      <button type="button" class="quiet" aria-expanded=${keyProblem !== undefined}
        onClick=${() => setKeyProblem(keyProblem === undefined ? null : undefined)}>API key${hasKey() ? " ●" : ""}</button>
    </header>
    ${keyProblem !== undefined && html`<${KeyForm} problem=${keyProblem} done=${keyDone} />`}
    <main ref=${main} tabindex="-1" class=${classes(view, !PICKED.includes(view) && "wide")}>
      ${PICKED.includes(view) && html`<div class="picker">
        <${Search} add=${add} report=${report} />
        <${StoredUser} user=${user} setUser=${setUser} attempt=${attempt} learn=${learn} report=${report} />
        <${Chosen} items=${chosen} stored=${user !== null}
          remove=${(index) => setChosen((items) => items.filter((_, other) => other !== index))}
          clear=${() => setChosen([])} />
      </div>`}
      ${view === "try" ? html`<${Try} ...${shared} />` : html`<${Fetched} key=${view} load=${MODULES[view]} name=${VIEWS[view]}
        ...${shared} />`}
    </main>`;
}

const root = document.getElementById("console");
root.replaceChildren(); // what stands there for browsers without scripts
render(html`<${Console} />`, root);
