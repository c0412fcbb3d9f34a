// Users: what is stored of a user beside what the model makes of it; export and erasure.
import { call } from "./api.js";
import { html, useEffect, useState } from "./dom.js";
import { Confirm, sayAgo, Table, Time, usePolled } from "./parts.js";
import { countEvents, loadEvents, SHOWN_EVENTS } from "./picker.js";
import { Curl, formatMs, ProblemNote, RankedList, Title } from "./ranked_list.js";
import { explainAnswer, makeQuestion, useAnswer } from "./try.js";

const RECENT = 20;
const path = (user) => `users/${encodeURIComponent(user)}`;

/** Hand a document over as a file. Its name says nothing of the user. */
function save(document) {
  const link = window.document.createElement("a");
  link.href = URL.createObjectURL(new Blob([JSON.stringify(document, null, 1)], { type: "application/json" }));
  link.download = "history.json";
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
}

/** The users of the newest events. Asked for when the view opens and by the button: it is no feed. */
function Recent({ user, choose, shared, changed }) {
  const { answer, problem, again } = usePolled((signal) => call("GET", `users?recent=${RECENT}`, { signal }), 0, shared);
  useEffect(() => changed > 0 && again(), [changed]);
  return html`<section class="panel" aria-labelledby="recent">
    <header><h2 id="recent">Recent</h2><button type="button" class="quiet" onClick=${again}>Refresh</button></header>
    ${problem && html`<${ProblemNote} problem=${problem} />`}
    ${answer?.count === 0 && html`<p class="hint">No events since the archive was last written. Type a user's id above.</p>`}
    <ul class="people">${answer?.users.map(({ user_id, last_event_at }) => html`<li key=${user_id}>
      <button type="button" class="quiet" aria-pressed=${user_id === user} onClick=${() => choose(user_id)}>
        <bdi>${user_id}</bdi> <small>${sayAgo(last_event_at)}</small></button></li>`)}</ul>
  </section>`;
}

function History({ user, shared, openItem, erased }) {
  const { learn } = shared;
  const { answer: events, problem } = usePolled((signal) => loadEvents(user, signal), 0, shared);
  const [asking, setAsking] = useState(false);
  const [failed, setFailed] = useState(null);
  useEffect(() => events && learn(events), [events]);
  const download = () => call("GET", `${path(user)}/history`).then(save, setFailed);
  const rows = events?.slice(-SHOWN_EVENTS).reverse().map((event) => [
    html`<button type="button" class="pick" title="Open the item" onClick=${() => openItem(event)}><${Title} item=${event} /></button>`,
    event.type,
    event.value ?? "–",
    html`<${Time} at=${new Date(event.timestamp).toISOString()} />`,
  ]);
  return html`<section class="panel" aria-labelledby="history">
    <header><h2 id="history"><bdi>${user}</bdi> ${events && html`<small>${countEvents(events.length)}</small>`}</h2>
      ${events?.length > 0 && html`<p class="buttons"><button type="button" class="quiet" onClick=${download}>Export</button>
        <button type="button" class="quiet danger" onClick=${() => setAsking(true)}>Erase…</button></p>`}</header>
    ${(problem ?? failed) && html`<${ProblemNote} problem=${problem ?? failed} />`}
    ${events?.length === 0 && html`<p class="hint">Nothing is remembered of this user.</p>`}
    ${rows?.length > 0 && html`<${Table} label="What the user did, the newest first" rows=${rows} head=${["Item", "Type", "Value", "Time"]} />`}
    ${events?.length > SHOWN_EVENTS && html`<p class="hint">The newest ${SHOWN_EVENTS}. The export has all that is remembered.</p>`}
    ${asking && html`<${Confirm} title="Erase this user?" button="Erase for good" wanted=${user} done=${() => setAsking(false)}
      text="History and log entries go at once, archived events with the archiver's next run. Nobody can bring them back."
      act=${() => call("DELETE", path(user)).then(erased)} />`}
  </section>`;
}

function Next({ user, shared, openItem }) {
  const question = makeQuestion(user, []);
  const { answer, problem } = useAnswer(question, shared.attempt, shared.report);
  const hint = answer && explainAnswer(answer, 0);
  useEffect(() => answer && shared.learn(answer.items), [answer]);
  return html`<section class="panel" aria-labelledby="next">
    <header><h2 id="next">Next</h2>${answer && html`<p class="facts"><b>${formatMs(answer.took_ms)} ms</b> by <b>${answer.source}</b></p>`}</header>
    ${problem && html`<${ProblemNote} problem=${problem} />`}
    ${hint && html`<p class="hint">${hint}</p>`}
    ${answer && html`<${RankedList} answer=${answer} nameOf=${shared.nameOf} add=${openItem} label="Recommended next" hint="Open the item" />`}
    <${Curl} path="recommend" body=${question} />
  </section>`;
}

/** The view. Nothing of a user is put into the page's address. */
export function Users({ openItem, ...shared }) {
  const [given, setGiven] = useState("");
  const [user, setUser] = useState(null);
  const [changed, setChanged] = useState(0);
  const [said, setSaid] = useState("");
  const choose = (id) => {
    setUser(id);
    setSaid("");
  };
  const onSubmit = (event) => {
    event.preventDefault();
    if (given) choose(given);
  };
  const erased = () => {
    setUser(null);
    setChanged((count) => count + 1);
    setSaid("The user is erased.");
  };
  useEffect(() => changed > 0 && document.getElementById("user-id").focus(), [changed]); // the dialog is gone by then
  return html`<div class="panels beside">
    <div class="panels">
      <form class="panel" onSubmit=${onSubmit}><label for="user-id">A user's id</label>
        <div class="field"><input id="user-id" type="text" autocomplete="off" spellcheck=${false} maxlength="256" value=${given}
          onInput=${(event) => setGiven(event.target.value)} /><button type="submit" disabled=${!given}>Show</button></div></form>
      <${Recent} user=${user} choose=${choose} shared=${shared} changed=${changed} />
    </div>
    <div class="panels">
      ${user === null && html`<section class="panel"><p class="hint">Choose a user to see what is remembered, and what the
        model makes of it. Each look at a user is a line of the audit log.</p></section>`}
      ${user !== null && html`<div class="panels halves" key=${user}>
        <${History} user=${user} shared=${shared} openItem=${openItem} erased=${erased} />
        <${Next} user=${user} shared=${shared} openItem=${openItem} /></div>`}
      <p role="status" class="said">${said}</p>
    </div>
  </div>`;
}
