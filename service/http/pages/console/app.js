// The console: one history, seen by several views. All that it knows comes from the public API.
import { hasKey, setKey } from "./api.js";
import { html, render, useCallback, useEffect, useRef, useState } from "./dom.js";
import { Chosen, Search, StoredUser } from "./picker.js";
import { nameItem } from "./ranked_list.js";
import { Try } from "./try.js";

const VIEWS = { try: "Try", compare: "Compare" };

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

/** Compare is fetched when it is first looked at. */
function Compare(shared) {
  const [view, setView] = useState(null);
  useEffect(() => {
    import("./compare.js").then((module) => setView(() => module.Compare));
  }, []);
  return view && html`<${view} ...${shared} />`;
}

/** Asks for an API key, which stays in this page's memory. */
function KeyForm({ problem, done }) {
  const input = useRef(null);
  useEffect(() => input.current.focus(), []);
  const onSubmit = (event) => {
    event.preventDefault();
    setKey(input.current.value);
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
    <p class="hint">It is kept in this page's memory only, and is gone when the page is closed.</p>
  </form>`;
}

function Console() {
  const view = useView();
  const [chosen, setChosen] = useState([]);
  const [user, setUser] = useState(null);
  const [attempt, setAttempt] = useState(0);
  const [keyProblem, setKeyProblem] = useState(undefined); // undefined: no form; null: asked for by the user
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
  const View = { try: Try, compare: Compare }[view];
  return html`
    <header class="top">
      <h1>nextitem</h1>
      <nav aria-label="Views">${Object.entries(VIEWS).map(([name, label]) => html`<a key=${name} href=${`#${name}`}
        aria-current=${name === view ? "page" : null}>${label}</a>`)}</nav>
      <button type="button" class="quiet" aria-expanded=${keyProblem !== undefined}
        onClick=${() => setKeyProblem(keyProblem === undefined ? null : undefined)}>API key${hasKey() ? " ●" : ""}</button>
    </header>
    ${keyProblem !== undefined && html`<${KeyForm} problem=${keyProblem} done=${keyDone} />`}
    <main class=${view}>
      <div class="picker">
        <${Search} add=${add} report=${report} />
        <${StoredUser} user=${user} setUser=${setUser} attempt=${attempt} learn=${learn} report=${report} />
        <${Chosen} items=${chosen} stored=${user !== null}
          remove=${(index) => setChosen((items) => items.filter((_, other) => other !== index))}
          clear=${() => setChosen([])} />
      </div>
      <${View} user=${user} chosen=${chosen} attempt=${attempt} add=${add} nameOf=${nameOf} report=${report} learn=${learn} />
    </main>`;
}

const root = document.getElementById("console");
root.replaceChildren(); // what stands there for browsers without scripts
render(html`<${Console} />`, root);
