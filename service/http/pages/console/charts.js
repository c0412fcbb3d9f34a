// Lines over the last ten minutes, as SVG; the same in a table for who wants numbers.
import { html, useState } from "./dom.js";
import { Table } from "./parts.js";

const [LEAST_S, MOST_S] = [60, 600]; // as much as there is, within these
const ROWS = 20;
const [WIDTH, HEIGHT] = [600, 100]; // stretched to the place that there is, without the strokes

/** So many lines can be told apart: style.css has a colour and dashes for each. */
export const MAX_LINES = 5;

/** The end of the scale: the next of 1, 2, 5, 10, ... */
export function roundUp(most) {
  if (!(most > 0)) return 1;
  const size = 10 ** Math.floor(Math.log10(most));
  return size * [1, 2, 5, 10].find((step) => step * size >= most);
}

/** The path of a line, broken where values are missing. */
function trace(places, values, most) {
  let pen = "M";
  let path = "";
  values.forEach((value, index) => {
    if (value === null) {
      pen = "M";
      return;
    }
    path += `${pen}${places[index].toFixed(1)} ${(HEIGHT * (1 - value / most)).toFixed(2)}`;
    pen = "L";
  });
  return path;
}

function Plot({ times, lines, say, pointed, setPointed, label }) {
  const now = times.at(-1);
  const span = Math.min(MOST_S, Math.max(LEAST_S, now - times[0]));
  const places = times.map((time) => (WIDTH * (time - now + span)) / span);
  const most = roundUp(Math.max(...[...lines.values()].flat()));
  const onMove = (event) => {
    const { left, width } = event.currentTarget.getBoundingClientRect();
    const place = (WIDTH * (event.clientX - left)) / width;
    const distances = places.map((other) => Math.abs(other - place));
    setPointed(distances.indexOf(Math.min(...distances)));
  };
  return html`<div class="plot" role="img" aria-label=${label}>
    <div class="scale" aria-hidden="true">${[most, most / 2, 0].map((value) => html`<span>${say(value)}</span>`)}</div>
    <svg viewBox="0 0 ${WIDTH} ${HEIGHT}" preserveAspectRatio="none" aria-hidden="true"
      onPointerMove=${onMove} onPointerLeave=${() => setPointed(null)}>
      ${[0, HEIGHT / 2, HEIGHT].map((y) => html`<path class="rule" d=${`M0 ${y}H${WIDTH}`} />`)}
      ${[...lines.values()].map((values, line) => html`<path class=${`line line-${line}`} d=${trace(places, values, most)} />`)}
      ${pointed !== null && html`<path class="rule pointed" d=${`M${places[pointed]} 0V${HEIGHT}`} />`}
    </svg>
    <div class="ends" aria-hidden="true"><span>${span < 120 ? `${Math.round(span)} s` : `${Math.round(span / 60)} min`} ago</span><span>now</span></div>
  </div>`;
}

/** Lines by name. `times` in seconds since 1970, `lines` a Map from a name to a value, or null, for each. */
export function Chart({ title, times, lines, say }) {
  const [asTable, setAsTable] = useState(false);
  const [pointed, setPointed] = useState(null);
  const names = [...lines.keys()].slice(0, MAX_LINES);
  const sayAt = (name, index) => {
    const value = lines.get(name)[index];
    return value === null || value === undefined ? "–" : say(value);
  };
  const last = times.length - 1;
  const at = pointed === null || pointed > last ? last : pointed;
  const sayTime = (index) => new Date(times[index] * 1000).toLocaleTimeString();
  const step = Math.max(1, Math.ceil(times.length / ROWS));
  const rows = times.map((_, index) => index).filter((index) => (last - index) % step === 0).reverse()
    .map((index) => [sayTime(index), ...names.map((name) => sayAt(name, index))]);
  return html`<section class="panel chart" aria-label=${title}>
    <header><h2>${title}</h2><button type="button" class="quiet" aria-pressed=${asTable} aria-label=${`${title} as a table`}
      onClick=${() => setAsTable(!asTable)}>Table</button></header>
    ${names.length === 0 && html`<p class="hint">Nothing to show yet.</p>`}
    ${names.length > 0 && asTable && html`<${Table} label=${`${title}, the newest first`} head=${["Time", ...names]} rows=${rows} />`}
    ${names.length > 0 && !asTable && html`<ul class="legend">${names.map((name, line) => html`<li key=${name}>
        <i class=${`swatch line-${line}`} aria-hidden="true"></i><bdi>${name}</bdi> <b>${sayAt(name, at)}</b></li>`)}
        ${pointed !== null && html`<li>at ${sayTime(at)}</li>`}</ul>
      <${Plot} times=${times} lines=${new Map(names.map((name) => [name, lines.get(name)]))} say=${say} pointed=${pointed === null ? null : at}
        setPointed=${setPointed} label=${`${title}, now: ${names.map((name) => `${name} ${sayAt(name, last)}`).join(", ")}`} />`}
  </section>`;
}
