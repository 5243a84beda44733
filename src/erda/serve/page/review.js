// Review: one suggested sentence at a time, the most useful first.
import { html, useState } from "./vendor/preact-htm.js";
import { api } from "./api.js";
import { Bar, Chip, dropping, Empty, FileField, Marked, Picker, relationOfKey, useKeys } from "./parts.js";
import { TEXT } from "./example.js";
import { attempt, loadRelations, nameOf, say, state, update } from "./state.js";
import { counted, exampleOfAnswer, percent } from "./text.js";

const LEAST = 0.05; // pairs that are less likely are not shown
const CHUNK = 40_000; // characters per request
const MOST_ASKED = 60; // pairs that are asked again after a judgement
const STORED = "erda-reviewed";

// The review of this visit. `trail` holds, for each judgement, whether the suggestion was right. `card` is the suggestion
// on the screen; it stays until it is judged, whatever later answers say.
const review = { card: null, draft: "", pairs: null, hint: "", wanted: "", threshold: 0.9, trail: [], done: [], shown: storedKeys() };

function storedKeys() {
  try { return new Set(JSON.parse(localStorage.getItem(STORED) ?? "[]")); } catch { return new Set(); }
}
function store() {
  try { localStorage.setItem(STORED, JSON.stringify([...review.shown].slice(-5000))); } catch { /* no storage */ }
}

/** Both directions of a pair in a sentence are one question. */
const keyOfPair = (one) => `${one.tokens.join(" ")} ${[one.head_span[0], one.tail_span[0]].sort((a, b) => a - b)}`;

function suggestions() {
  const best = new Map();
  for (const one of review.pairs ?? []) {
    const ranked = review.wanted ? one.ranked.find((other) => other.relation === review.wanted) : one.ranked[0];
    const key = keyOfPair(one);
    if (!ranked || ranked.confidence < LEAST || review.shown.has(key)) continue;
    if (!best.has(key) || best.get(key).confidence < ranked.confidence)
      best.set(key, { key, answer: one, relation: ranked.relation, confidence: ranked.confidence });
  }
  return [...best.values()].sort((a, b) => Math.abs(a.confidence - 0.5) - Math.abs(b.confidence - 0.5));
}

const start = (text) => attempt(async () => {
  if (!text.trim()) throw new Error("Paste a text or open a file first.");
  const chunks = [""];
  for (const line of text.split("\n")) {
    if (chunks.at(-1).length + line.length > CHUNK) chunks.push("");
    chunks[chunks.length - 1] += `${line}\n`;
  }
  const taught = await Promise.all(state.relations.map((one) => api.examples(one.id)));
  const known = new Set(taught.flatMap((one) => [...one.examples, ...(one.counterexamples ?? [])]).map(keyOfPair));
  const pairs = [];
  for (const chunk of chunks.filter((one) => one.trim())) {
    const found = await api.extract(chunk, null, "all", 50);
    review.hint = found.hint;
    pairs.push(...found.answers.filter((one) => !known.has(keyOfPair(one))));
  }
  Object.assign(review, { card: null, pairs, trail: [], done: [], n: pairs.length });
});

/** Apply a judgement, and ask again about the pairs that come next. */
const apply = (items, isRight, action) => !state.busy && attempt(async () => {
  const before = state.version;
  await action();
  await loadRelations();
  if (isRight !== null) review.trail.push(isRight);
  finish(items, { before: state.version === before ? null : before, isRight });
  askAgain();
});

let nAsked = 0;
async function askAgain() {
  const [turn, next] = [++nAsked, suggestions().slice(0, MOST_ASKED).map((one) => one.answer)];
  if (!next.length) return;
  const { answers } = await api.predict(next.map(exampleOfAnswer), 50).catch(() => ({ answers: [] }));
  if (turn !== nAsked || !answers.length) return;
  const fresh = new Map(next.map((one, place) => [one, answers[place]]));
  review.pairs = review.pairs.map((one) => (fresh.has(one) ? { ...one, ...fresh.get(one) } : one));
  update({});
}

function finish(items, about) {
  for (const one of items) review.shown.add(one.key);
  review.done.push({ items, ...about });
  store();
  update({});
}

const undoLast = () => attempt(async () => {
  const last = review.done.at(-1);
  if (!last) throw new Error("Nothing to undo in this review.");
  if (last.before !== null) await api.undo(last.before);
  review.done.pop();
  review.card = last.items.length === 1 ? last.items[0] : null;
  for (const one of last.items) review.shown.delete(one.key);
  if (last.isRight !== null) review.trail.pop();
  store();
  await loadRelations();
  say(`Undone: ${counted(last.items.length, "sentence")}.`);
});

export function Review() {
  const [, redraw] = useState(0);
  const set = (changes) => { Object.assign(review, changes); redraw((n) => n + 1); };
  const all = suggestions();
  if (!review.card || review.shown.has(review.card.key)) review.card = all[0];
  const current = review.card;
  const above = all.filter((one) => one.confidence >= review.threshold);
  const yes = () => apply([current], true, () => api.judge(exampleOfAnswer(current.answer), current.relation, true));
  const no = () => apply([current], false, () => api.judge(exampleOfAnswer(current.answer), current.relation, false));
  const skip = () => finish([current], { before: null, isRight: null });
  const other = (relation) => apply([current], relation === current.relation, () => api.teach({ relation, examples: [exampleOfAnswer(current.answer)] }));
  const acceptAll = () => apply(above, null, () => api.teach({ examples: above.map((one) => ({ ...exampleOfAnswer(one.answer), relation: one.relation })) }));
  useKeys((event) => {
    if (state.busy || !review.pairs) return;
    const numbered = relationOfKey(event);
    const act = event.key === "u" ? undoLast : current && (numbered ? () => other(numbered) : { y: yes, n: no, s: skip }[event.key]);
    if (act) { event.preventDefault(); act(); }
  });
  if (!state.relations.length) return html`<section class="panel narrow"><h1>Review</h1><${Empty} title="Nothing to suggest yet">
    <p>Suggestions need at least one relation with a few examples.</p><p class="buttons"><a class="button" href="#teach">Teach a relation</a></p></${Empty}></section>`;
  if (!review.pairs) return html`<${Start} set=${set} />`;
  return html`<div class="columns"><section class="panel" aria-label="Suggestion">
      <div class="bar-top"><button onClick=${() => set({ pairs: null, card: null })}>Another text</button>
        <label class="slider">Relation <select value=${review.wanted} onChange=${(event) => set({ wanted: event.target.value, card: null })}>
          <option value="">any</option>${state.relations.map((one) => html`<option key=${one.id} value=${one.id}>${one.name}</option>`)}</select></label>
        <span class="quiet">${counted(all.length, "suggestion")} left</span></div>
      ${current ? html`<div aria-live="polite"><p class="big"><${Marked} text=${current.answer.text} /></p>
          <p class="question">${current.answer.head} → <${Chip} relation=${current.relation} /> → ${current.answer.tail}
            ${" "}<${Bar} value=${current.confidence} label="confidence" /></p></div>
        <p class="buttons"><button class="primary" onClick=${yes}>Yes <kbd>y</kbd></button><button onClick=${no}>No <kbd>n</kbd></button>
          <button onClick=${skip}>Skip <kbd>s</kbd></button><button onClick=${undoLast}>Undo <kbd>u</kbd></button></p>
        <h3>Another relation holds</h3><${Picker} label="Another relation" onPick=${other} />`
      : html`<${Empty} title="Nothing to show"><p>${reason()}</p><p class="buttons"><button onClick=${undoLast}>Undo <kbd>u</kbd></button></p></${Empty}>`}
    </section>
    <div class="side"><${Quality} />
      <section class="panel" aria-label="Accept all"><h2>Accept all</h2>
        <label class="slider">from <input type="range" min="0.05" max="1" step="0.01" value=${review.threshold}
          onInput=${(event) => set({ threshold: Number(event.target.value) })} /> <span>${percent(review.threshold)}</span></label>
        <p class="buttons"><button disabled=${!above.length} onClick=${acceptAll}>Accept ${counted(above.length, "suggestion")}</button></p></section></div></div>`;
}

function reason() {
  if (!review.n) return `No two entities share a sentence of this text, or all pairs are taught already. ${review.hint}`;
  const open = new Set(review.pairs.map(keyOfPair).filter((key) => !review.shown.has(key))).size;
  if (!open) return "Every pair of this text has been reviewed.";
  const what = review.wanted ? `for “${nameOf(review.wanted)}”` : "for any relation";
  return `${counted(open, "pair")} left, all below ${percent(LEAST)} ${what}. Teach another example, or choose another relation.`;
}

function Start({ set }) {
  const take = (text) => { set({ draft: text }); start(text); };
  return html`<section class="panel narrow" ...${dropping(take)}><h1>Review a text</h1>
    <form onSubmit=${(event) => { event.preventDefault(); start(review.draft); }}>
      <label for="review-text">Unlabelled text. Likely relations are shown one by one; press y, n, s or a number.</label>
      <textarea id="review-text" rows="9" value=${review.draft} onInput=${(event) => set({ draft: event.target.value })}></textarea>
      <p class="buttons"><button class="primary" type="submit">Start</button><${FileField} label="Open a file" onText=${take} />
        ${state.doc && html`<button type="button" onClick=${() => take(state.doc.text)}>Use the text of Read</button>`}
        <button type="button" onClick=${() => take(TEXT)}>Use the example text</button></p></form></section>`;
}

function Quality() {
  const right = review.trail.filter(Boolean).length;
  const shares = review.trail.map((_, place) => review.trail.slice(0, place + 1).filter(Boolean).length / (place + 1));
  const x = (place) => 30 + (shares.length > 1 ? (place * 260) / (shares.length - 1) : 130);
  const y = (share) => 90 - 80 * share;
  return html`<section class="panel" aria-label="Quality so far"><h2>Quality so far</h2>
    <p>${shares.length ? `${right} of ${shares.length} suggestions were right (${percent(right / shares.length)}).` : "Judge a suggestion to begin."}</p>
    ${shares.length > 0 && html`<svg class="curve" viewBox="0 0 300 100" role="img" aria-label=${`Share of right suggestions: ${shares.map(percent).join(", ")}`}>
      ${[0, 0.5, 1].map((one) => html`<line x1="30" x2="290" y1=${y(one)} y2=${y(one)} /><text x="24" y=${y(one) + 3} text-anchor="end">${100 * one}</text>`)}
      <polyline points=${shares.map((one, place) => `${x(place)},${y(one)}`).join(" ")} />
      <circle cx=${x(shares.length - 1)} cy=${y(shares.at(-1))} r="3.5" /></svg>`}</section>`;
}
