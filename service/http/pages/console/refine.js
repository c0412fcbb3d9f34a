// Filter and rules of a list: which items it may hold, how unlike they are, how many of a kind. Fetched when opened.
import { call } from "./api.js";
import { html, useEffect, useRef, useState } from "./dom.js";
import { keepFocus } from "./picker.js";
import { isText, ProblemNote } from "./ranked_list.js";
import { EXISTS, sayCondition } from "./try.js";

const MOST_CONDITIONS = 16; // as the service has it
const SUGGESTED = 50;
const SIGNS = { string: ["is", "is not", EXISTS], number: ["is", "≥", "≤", EXISTS] };

/** The values of a field that the items at hand have: what may be typed, not all that there is. */
const listValues = (items, field) =>
  [...new Set(items.flatMap(({ metadata }) => metadata?.[field] ?? []).filter(isText).map(String))].sort().slice(0, SUGGESTED);

const Choice = ({ label, value, choose, options }) => html`<label>${label}
  <select value=${value} onChange=${(event) => choose(event.target.value)}>
    ${options.map(([name, text]) => html`<option key=${name} value=${name}>${text}</option>`)}</select></label>`;

const name = (text) => [text, text];

/** A new condition. `fields` is a Map from a field to the kind of its values. */
function NewCondition({ fields, items, add }) {
  const [field, setField] = useState(fields.keys().next().value);
  const [wanted, setWanted] = useState("is");
  const [value, setValue] = useState("");
  const kind = fields.get(field);
  const sign = SIGNS[kind].includes(wanted) ? wanted : "is";
  const takesValue = sign !== EXISTS;
  const onSubmit = (event) => {
    event.preventDefault();
    add({ field, sign, ...(takesValue && { value: kind === "number" ? Number(value) : value }) });
    setValue("");
  };
  return html`<form class="condition" onSubmit=${onSubmit}>
    <${Choice} label="Field" value=${field} choose=${setField} options=${[...fields.keys()].map(name)} />
    <${Choice} label="Condition" value=${sign} choose=${setWanted} options=${SIGNS[kind].map(name)} />
    ${takesValue && html`<label>Value <input required maxlength="256" autocomplete="off" list="values" value=${value}
      type=${kind === "number" ? "number" : "text"} step="any" onInput=${(event) => setValue(event.target.value)} /></label>
      <datalist id="values">${listValues(items, field).map((text) => html`<option key=${text} value=${text}></option>`)}</datalist>`}
    <button type="submit">Add</button>
  </form>`;
}

function Conditions({ conditions, change }) {
  const list = useRef(null);
  const takeOut = (index) => {
    change(conditions.filter((_, other) => other !== index));
    keepFocus(list, index, ".condition select");
  };
  return html`<ul class="chips" ref=${list} aria-label="Conditions, all of which hold">
    ${conditions.map((condition, index) => html`<li key=${sayCondition(condition)}><bdi>${sayCondition(condition)}</bdi>
      <button type="button" class="remove" aria-label=${`Remove ${sayCondition(condition)}`} onClick=${() => takeOut(index)}>✕</button></li>`)}
  </ul>`;
}

/** What the list may hold. `rules` is what was chosen, `missing` what this service's bundle was published without. */
export function Refine({ rules, setRules, missing, items, attempt, report }) {
  const [fields, setFields] = useState(null);
  const [problem, setProblem] = useState(null);
  const change = (more) => setRules((now) => ({ ...now, ...more }));
  useEffect(() => {
    const abort = new AbortController();
    call("GET", "model", { signal: abort.signal }).then(
      (model) => {
        setFields(new Map(Object.entries(model.filter_fields ?? {})));
        setProblem(null);
      },
      (error) => {
        if (error.name === "AbortError") return;
        setProblem(error);
        report(error);
      },
    );
    return () => abort.abort();
  }, [attempt]);
  const { conditions, diversity, cap } = rules;
  const add = (condition) => change({ conditions: [...conditions.filter((one) => sayCondition(one) !== sayCondition(condition)), condition] });
  const capped = [...new Set([...items.flatMap(({ metadata }) => Object.keys(metadata ?? {})), cap.field])].filter(Boolean);
  const setCap = (more) => change({ cap: { ...cap, ...more } });
  return html`<div class="rules">
    ${problem && html`<${ProblemNote} problem=${problem} />`}
    <${Conditions} conditions=${conditions} change=${(left) => change({ conditions: left })} />
    ${fields?.size > 0 && conditions.length < MOST_CONDITIONS && html`<${NewCondition} fields=${fields} items=${items} add=${add} />`}
    ${fields?.size === 0 && html`<p class="hint">This bundle has no fields to filter by. Publish it with --items to have them.</p>`}
    <div class="condition">
      <label>Diversity ${diversity.toFixed(1)} <input type="range" min="0" max="1" step="0.1" value=${diversity} disabled=${"diversity" in missing}
        aria-valuetext=${diversity.toFixed(1)} onInput=${(event) => change({ diversity: Number(event.target.value) })} /></label>
      <label>At most <input type="number" min="1" max="100" required value=${cap.count}
        onInput=${(event) => event.target.validity.valid && setCap({ count: Number(event.target.value) })} /></label>
      <${Choice} label="of each" value=${cap.field} choose=${(field) => setCap({ field })}
        options=${[["", "(no limit)"], ...capped.map(name)]} />
    </div>
    ${Object.entries(missing).map(([field, detail]) => html`<p class="hint" key=${field}>${field}: ${detail}.</p>`)}
  </div>`;
}
