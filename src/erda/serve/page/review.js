// Review: one suggested pair at a time, the most useful first. The server ranks the pairs and remembers every decision;
// the page keeps the last reply only, and the decisions that Undo takes back.
import { html, useEffect, useState } from "./vendor/preact-htm.js";
import { api } from "./api.js";
import { TEXT } from "./example.js";
import { Bar, Chip, Curve, dropping, Empty, FileField, Marked, Picker, relationOfKey, useKeys } from "./parts.js";
import { attempt, loadRelations, nameOf, read as readText, say, state, update } from "./state.js";
import { counted, exampleOfAnswer, parts, percent, tidy } from "./text.js";

const SAVED_AFTER = 2_500; // milliseconds: the server turns judgements into a version after two quiet seconds
const review = { view: null, isOpen: false, job: null, run: 0, text: "", draft: "", wanted: "", threshold: 0.9, done: [] };

const asked = () => (review.wanted ? { relation: review.wanted } : {});

const MOST_LOOKS = 8; // for a version that is made of judgements that no longer wait
let [timer, looks] = [0, 0];
async function take(view) {
  review.view = view;
  await follow(view);
  update({});
}

/** Show the version that the server makes of the judgements that wait. */
async function follow({ version, n_waiting }) {
  const isNew = version !== state.version;
  if (isNew) await loadRelations();
  clearTimeout(timer);
  looks = n_waiting ? MOST_LOOKS : isNew ? 0 : Math.max(looks - 1, 0); // judgements stop waiting before their version answers
  if (looks) timer = setTimeout(() => api.review.state().catch(() => ({ version: state.version, n_waiting })).then(follow).catch(() => {}), SAVED_AFTER);
}

/** An entity of a pair, and the name that a pronoun stands for. */
const said = (pair, role) => tidy(pair[role]) + (pair[`${role}_resolved`] ? ` (${tidy(pair[`${role}_resolved`])})` : "");

const next = () => attempt(async () => take(await api.review.next(asked())));

const FIRST = 600; // characters that are ranked at once, so that a pair is soon there

const start = (text) => attempt(async () => {
  if (!text.trim()) throw new Error("Paste a text or open a file first.");
  const [[first, ...rest], run] = [parts(text, FIRST), ++review.run];
  const isMine = () => run === review.run; // else another text was chosen meanwhile
  const end = () => { if (isMine()) { review.job = null; update({}); } };
  if (review.job?.id) api.cancel(review.job.id).catch(() => {});
  review.job = { done: 0, total: 0 };
  update({});
  try {
    const view = await api.review.texts([first]);
    Object.assign(review, { text, isOpen: !rest.length || Boolean(view.pair), wanted: "", done: [] });
    await take(view);
  } catch (fault) { end(); throw fault; }
  if (rest.length) rankAll(text, isMine).catch((fault) => say(fault.message, true)).finally(end); // not awaited: the person decides about the first pairs
  else end();
});

/** Rank all pairs of a text in a job of the server; its pairs replace those of the first sentences. */
async function rankAll(text, isMine) {
  let job = await api.review.texts(parts(text), true);
  while (isMine() && ["waiting", "running"].includes(job.state)) {
    review.job = job;
    update({});
    await new Promise((wake) => setTimeout(wake, 400));
    job = await api.job(job.id);
  }
  if (!isMine()) return api.cancel(job.id).catch(() => {});
  if (job.state === "failed") throw new Error(job.failure.message);
  review.isOpen = true;
  return take(await api.review.next(asked()));
}

/** Send a decision; a pair that was decided elsewhere is replaced by the next one. */
const decide = (action) => !state.busy && attempt(async () => {
  try {
    const view = await action();
    if (view.keys.length) review.done.push(view.keys);
    await take(view);
  } catch (fault) {
    await take(await api.review.next(asked()).catch(() => { throw fault; }));
    throw fault;
  }
});

const judge = (pair, holds, instead) => decide(async () => {
  const isNew = instead && !state.relations.some((one) => one.id === instead || one.name === instead);
  if (isNew) await api.teach({ relation: instead, examples: [exampleOfAnswer(pair)] });
  return api.review.judge({ ...asked(), key: pair.key, holds, ...(instead && { instead }) });
});

const acceptAll = (least) => decide(async () => {
  const view = await api.review.accept({ ...asked(), min_confidence: least });
  say(`Accepted ${counted(view.keys.length, "suggestion")}. Undo takes all of them back.`);
  return view;
});

const undoLast = () => !state.busy && attempt(async () => {
  const keys = review.done.at(-1) ?? [];
  const view = await api.review.undo({ ...asked(), keys });
  review.done.pop();
  say(view.keys.length ? `Undone: ${counted(Math.max(keys.length, view.keys.length), "decision")}.` : "Nothing to undo.");
  await take(view);
});

export function Review() {
  const [, redraw] = useState(0);
  const set = (changes) => { Object.assign(review, changes); redraw((n) => n + 1); };
  useEffect(() => {
    if (state.relations.length && !review.job) next().then(() => { if (review.view?.pair) set({ isOpen: true }); });
  }, [state.relations.length]);
  const { view } = review;
  const pair = review.isOpen ? view?.pair : null;
  useKeys((event) => {
    if (state.busy || !review.isOpen) return;
    const numbered = relationOfKey(event);
    const act = { y: () => judge(pair, true), n: () => judge(pair, false), s: () => judge(pair, null) };
    const chosen = event.key === "u" ? undoLast : pair && (numbered ? () => judge(pair, true, numbered) : act[event.key]);
    if (chosen) { event.preventDefault(); chosen(); }
  });
  if (!state.relations.length) return html`<section class="panel narrow"><h1>Review</h1><${Empty} title="Nothing to suggest yet">
    <p>Suggestions need at least one relation with a few examples.</p><p class="buttons"><a class="button" href="#teach">Teach a relation</a></p></${Empty}></section>`;
  if (!review.isOpen || !view) return html`<${Start} set=${set} />`;
  return html`<div class="columns"><section class="panel" aria-label="Suggestion">
      <div class="bar-top"><button onClick=${() => set({ isOpen: false })}>Another text</button>
        <label class="slider">Relation <select value=${review.wanted} onChange=${(event) => { review.wanted = event.target.value; next(); }}>
          <option value="">any</option>${state.relations.map((one) => html`<option key=${one.id} value=${one.id}>${one.name}</option>`)}</select></label>
        <span class="quiet">${counted(view.n_left, "suggestion")} left</span></div>
      ${pair ? html`<div aria-live="polite"><p class="big"><${Marked} text=${pair.text} /></p>
          <p class="question"><span>${said(pair, "head")} →</span> <${Chip} relation=${pair.relation} /> <span>→ ${said(pair, "tail")}?</span>
            <${Bar} value=${pair.confidence} label="confidence" /></p></div>
        <p class="buttons"><button class="primary" onClick=${() => judge(pair, true)}>Yes <kbd>y</kbd></button><button onClick=${() => judge(pair, false)}>No <kbd>n</kbd></button>
          <button onClick=${() => judge(pair, null)}>Skip <kbd>s</kbd></button><button onClick=${undoLast}>Undo <kbd>u</kbd></button></p>
        <h3>Another relation holds</h3><${Picker} label="Another relation" onPick=${(relation) => judge(pair, true, relation)} />`
      : review.job ? html`<${Empty} title="No likely pair yet" />`
      : html`<${Empty} title="Nothing to show"><p>${view.reason}</p>
          <p>In Read you see every entity of the text: click two of them to teach their relation.</p>
          <p class="buttons">${review.text && html`<button class="primary" onClick=${() => { update({ draft: review.text, doc: null }); location.hash = "read"; readText(review.text); }}>Open the text in Read</button>`}<a class="button" href="#teach">Teach a relation</a>
          <button onClick=${() => set({ isOpen: false })}>Another text</button><button onClick=${undoLast}>Undo <kbd>u</kbd></button></p></${Empty}>`}
      <${Working} />
    </section>
    <div class="side"><${Quality} view=${view} /><${Accept} view=${view} set=${set} /></div></div>`;
}

/** What the server is doing with the text. */
function Working() {
  if (!review.job) return null;
  const { id, done, total } = review.job;
  return html`<p class="buttons" role="status"><progress value=${done || null} max=${total || 1} aria-label="Progress"></progress>
    <span>${review.isOpen ? "Searching the rest of the text" : "Finding entities and likely relations between them"}${done ? `: ${done.toLocaleString("en")} of ${total.toLocaleString("en")}` : "…"}</span>
    ${id && html`<button onClick=${() => api.cancel(id).catch(() => {})}>Stop</button>`}</p>`;
}

function Accept({ view, set }) {
  const n = view.confidences.filter((one) => one >= review.threshold).length;
  const highest = view.confidences[0];
  return html`<section class="panel" aria-label="Accept all"><h2>Accept all</h2>
    <label class="slider">from <input type="range" min="0.05" max="1" step="0.01" value=${review.threshold}
      onInput=${(event) => set({ threshold: Number(event.target.value) })} /> <span>${percent(review.threshold)}</span></label>
    ${!n && highest !== undefined && html`<p class="quiet">The highest confidence is ${percent(highest)}.</p>`}
    <p class="buttons"><button disabled=${!n} onClick=${() => acceptAll(review.threshold)}>Accept ${counted(n, "suggestion")}</button></p></section>`;
}

function Start({ set }) {
  const go = (text) => { set({ draft: text }); start(text); };
  const n = review.view?.n_judged ?? 0;
  return html`<section class="panel narrow" ...${dropping(go)}><h1>Review a text</h1>
    <form onSubmit=${(event) => { event.preventDefault(); start(review.draft); }}>
      <label for="review-text">Unlabelled text. Likely relations are shown one by one; press y, n, s or a number.</label>
      <textarea id="review-text" rows="9" value=${review.draft} onInput=${(event) => set({ draft: event.target.value })}
        onKeyDown=${(event) => { if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) { event.preventDefault(); start(review.draft); } }}></textarea>
      <p class="buttons"><button class="primary" type="submit">Start <kbd>Ctrl Enter</kbd></button><${FileField} label="Open a file" onText=${go} />
        ${state.doc && html`<button type="button" onClick=${() => go(state.doc.text)}>Use the text of Read</button>`}
        <button type="button" onClick=${() => go(TEXT)}>Use the example text</button></p></form>
    <${Working} />
    ${n > 0 && html`<p class="quiet">${counted(n, "pair")} judged in all reviews; none is shown again.
      ${review.view.pair && html` <button class="link" onClick=${() => set({ isOpen: true })}>Continue the last review</button>`}</p>`}</section>`;
}

function Quality({ view }) {
  const right = view.right.filter(Boolean).length;
  const rows = state.relations.map((one) => [one.id, view.n_yes[one.id] ?? 0, view.n_no[one.id] ?? 0]).filter(([, yes, no]) => yes + no);
  return html`<section class="panel" aria-label="Quality so far"><h2>Quality so far</h2>
    ${view.progress && html`<p>${view.progress}</p>`}
    ${!view.right.length ? html`<p>Judge a suggestion to begin.</p>` : html`
    <p>${right} of ${counted(view.right.length, "suggestion")} right (${percent(right / view.right.length)}), in all reviews.</p>
    <${Curve} right=${view.right} />
    <table><thead><tr><th>relation</th><th>yes</th><th>no</th></tr></thead>
      <tbody>${rows.map(([id, yes, no]) => html`<tr key=${id}><td>${nameOf(id)}</td><td>${yes}</td><td>${no}</td></tr>`)}</tbody></table>`}</section>`;
}
