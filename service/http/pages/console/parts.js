// What the operators' views share: asking again while somebody looks, tables, times, and a question before a change.
import { html, useCallback, useEffect, useRef, useState } from "./dom.js";
import { ProblemNote } from "./ranked_list.js";

/** The last answer of `ask(signal)`, which is asked again `everyMs` after each answer; 0: only when told.

A hidden tab asks nothing. A key that may not ask is not tried again; `attempt` grows when there is another one. */
export function usePolled(ask, everyMs, { attempt, report }) {
  const [state, setState] = useState({ answer: null, problem: null });
  const [round, setRound] = useState(0);
  useEffect(() => {
    let timer;
    let abort;
    let refused = false;
    const run = async () => {
      if (document.hidden) return;
      abort = new AbortController();
      try {
        const answer = await ask(abort.signal);
        setState({ answer, problem: null });
      } catch (problem) {
        if (problem.name === "AbortError") return;
        setState(({ answer }) => ({ answer: problem.wantsKey ? null : answer, problem }));
        report(problem);
        refused = problem.wantsKey;
      }
      if (everyMs && !refused && !abort.signal.aborted) timer = setTimeout(run, everyMs);
    };
    const stop = () => {
      clearTimeout(timer);
      abort?.abort();
    };
    const onVisibility = () => {
      stop();
      if (!refused) run();
    };
    if (everyMs) document.addEventListener("visibilitychange", onVisibility);
    run();
    return () => {
      document.removeEventListener("visibilitychange", onVisibility);
      stop();
    };
  }, [attempt, round]);
  const again = useCallback(() => setRound((count) => count + 1), []);
  return { ...state, again };
}

/** "17 min ago". */
export function sayAgo(at) {
  const seconds = Math.max(0, (Date.now() - Date.parse(at)) / 1000);
  const [size, unit] = seconds < 90 ? [1, "s"] : seconds < 5400 ? [60, "min"] : seconds < 129600 ? [3600, "h"] : [86400, "d"];
  return `${Math.round(seconds / size)} ${unit} ago`;
}

/** A time as clocks here show it, with the day unless that is today. Anything else as it is. */
export function Time({ at }) {
  const time = new Date(at);
  if (Number.isNaN(time.getTime())) return html`<span>${at}</span>`;
  const today = time.toDateString() === new Date().toDateString();
  return html`<time datetime=${at} title=${at}>${today ? time.toLocaleTimeString() : time.toLocaleString()}</time>`;
}

/** Rows of cells below their heads. Wider than the screen, it scrolls by itself, by keyboard too. */
export const Table = ({ label, head, rows }) => html`<div class="scroll" role="region" aria-label=${label} tabindex="0">
  <table><thead><tr>${head.map((name) => html`<th scope="col">${name}</th>`)}</tr></thead>
    <tbody>${rows.map((cells) => html`<tr>${cells.map((cell) => html`<td>${cell}</td>`)}</tr>`)}</tbody></table></div>`;

/** Pairs of a name and what it is. */
export const Facts = ({ pairs }) => html`<dl class="pairs">${pairs.map(([name, what]) => html`<div><dt>${name}</dt><dd>${what}</dd></div>`)}</dl>`;

/** A good or a bad state: a sign and words, since colour alone says nothing. */
export const State = ({ good, children }) => html`<span class=${good ? "good" : "wrong"}>
  <span aria-hidden="true">${good ? "● " : "▲ "}</span>${children}</span>`;

/** A question before a change. `fields` are asked for; `wanted` must be typed first; `act(values)` does it. */
export function Confirm({ title, text, button, fields = [], wanted, act, done }) {
  const dialog = useRef(null);
  const [values, setValues] = useState(Object.fromEntries(fields.map(({ name, value = "" }) => [name, value])));
  const [typed, setTyped] = useState("");
  const [problem, setProblem] = useState(null);
  const [busy, setBusy] = useState(false);
  useEffect(() => dialog.current.showModal(), []);
  const close = () => dialog.current?.close(); // gives the focus back to where it was
  const onSubmit = async (event) => {
    event.preventDefault();
    setBusy(true);
    try {
      await act(values);
      close();
    } catch (error) {
      setProblem(error);
      setBusy(false);
    }
  };
  return html`<dialog ref=${dialog} aria-labelledby="confirm" onClose=${done}><form onSubmit=${onSubmit}>
    <h2 id="confirm">${title}</h2><p>${text}</p>
    ${wanted && html`<label>Type <bdi class="wanted">${wanted}</bdi> to confirm
      <input value=${typed} autocomplete="off" spellcheck=${false} onInput=${(event) => setTyped(event.target.value)} /></label>`}
    ${fields.map(({ name, label, value, ...rest }) => html`<label key=${name}>${label} <input ...${rest} value=${values[name]}
      onInput=${(event) => setValues({ ...values, [name]: event.target.value })} /></label>`)}
    ${problem && html`<${ProblemNote} problem=${problem} />`}
    <p class="buttons"><button type="button" class="quiet" onClick=${close}>Cancel</button>
      <button type="submit" disabled=${busy || (wanted && typed !== wanted)}>${button}</button></p>
  </form></dialog>`;
}
