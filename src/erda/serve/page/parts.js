// Parts that several views share.
import { html, useEffect, useRef, useState } from "./vendor/preact-htm.js";
import { colourOf, nameOf, state, swapTaught, update } from "./state.js";
import { counted, percent, piecesOf } from "./text.js";

export const Chip = ({ relation, children }) =>
  html`<span class="chip ${colourOf(relation)}">${relation === null ? "no relation" : nameOf(relation)}${children}</span>`;

export const Marked = ({ text }) => html`<span class="marked">${piecesOf(text).map((one) =>
  one.role ? html`<mark class=${one.role} title=${one.role}>${one.text}</mark>` : one.text)}</span>`;

export const Bar = ({ value, label }) =>
  html`<span class="bar"><meter min="0" max="1" value=${value} aria-label=${label}></meter><span>${percent(value)}</span></span>`;

export const Empty = ({ title, children }) => html`<div class="empty"><h2>${title}</h2>${children}</div>`;

export const PatternHint = () => html`<p class="quiet">One line each. A line such as “[[X]] was founded by {{Y}}.” counts as a sentence.</p>`;

/** Whether a key belongs to a field in which a person types. */
export const isTyping = (event) =>
  event.ctrlKey || event.metaKey || event.altKey ||
  Boolean(event.target.closest?.("dialog, textarea, select, input:not([type=range], [type=radio], [type=checkbox])"));

/** Call the newest `listener` for keys that no field uses. */
export function useKeys(listener) {
  const newest = useRef(listener);
  newest.current = listener;
  useEffect(() => {
    const hear = (event) => { if (!isTyping(event) && !event.defaultPrevented) newest.current(event); };
    addEventListener("keydown", hear);
    return () => removeEventListener("keydown", hear);
  }, []);
}

/** The relation that a number key names, or undefined. */
export const relationOfKey = (event) => (/^[1-9]$/.test(event.key) ? state.relations[Number(event.key) - 1]?.id : undefined);

/** Buttons for the first nine relations, and a field for all others and for new names. */
export function Picker({ label, onPick, current, isNew = true }) {
  const [name, setName] = useState("");
  const submit = (event) => {
    event.preventDefault();
    if (name.trim()) onPick(name.trim());
    setName("");
  };
  return html`<div class="picker" role="group" aria-label=${label}>
    ${state.relations.slice(0, 9).map((one, place) => html`<button key=${one.id} type="button"
      class="chip ${colourOf(one.id)}" aria-pressed=${current === one.id} onClick=${() => onPick(one.id)}>
      <kbd>${place + 1}</kbd>${one.name}</button>`)}
    ${(isNew || state.relations.length > 9) && html`<form class="inline" onSubmit=${submit}>
      <input list="relation-names" value=${name} onInput=${(event) => setName(event.target.value)} maxlength="200"
        aria-label=${isNew ? "Other or new relation" : "Other relation"} placeholder=${isNew ? "New relation…" : "Other…"} />
      <button type="submit">Use</button></form>`}
  </div>`;
}

export const Names = () =>
  html`<datalist id="relation-names">${state.relations.map((one) => html`<option key=${one.id} value=${one.name}></option>`)}</datalist>`;

/** A statement: head, relation, tail. */
export const Statement = ({ head, relation, tail, children }) => html`<span class="statement"><strong>${head}</strong> → <${Chip} relation=${relation} /> → <strong>${tail}</strong>${children}</span>`;

/** Warnings of the server about the last teaching, and what the last change did to the arrows of the text. */
export function Changes() {
  return html`${state.taught && html`<section class="panel warning" role="alert" aria-label="Warning"><h2>Is the direction right?</h2>
      ${state.taught.warnings.map((one) => html`<p key=${one}>${one}</p>`)}
      <p class="buttons"><button class="primary" onClick=${swapTaught}>Swap</button><button onClick=${() => update({ taught: null })}>It is right</button></p></section>`}
    ${state.changes && html`<${Differences} ...${state.changes} />`}`;
}

const Arrows = ({ arrows }) => (arrows.length ? arrows.map((one) => html`<${Statement} head=${one.head_said} relation=${one.relation} tail=${one.tail_said}> ${percent(one.confidence)}</${Statement}> `) : html`<${Chip} relation=${null} />`);

const Differences = ({ before, after, n, rows }) => html`<section class="panel changes" aria-label="What changed"><h2>What changed</h2>
  <p class="quiet">Version ${before} → ${after}, on ${counted(n, "pair")} of entities in the text of Read.</p>
  ${rows.length ? html`<ul class="rows">${rows.slice(0, 30).map((one) => html`<li key=${one.key}>
    <p><span class="quiet">before</span> <${Arrows} arrows=${one.before} /></p><p><span class="quiet">now</span> <${Arrows} arrows=${one.after} /></p></li>`)}</ul>
    ${rows.length > 30 && html`<p class="quiet">And ${rows.length - 30} more.</p>`}`
  : html`<p>No arrow changed by 5 percentage points or more.</p>`}</section>`;

const RECENT = 20;

/** The share of right suggestions among the last ones, as a curve over all judgements. */
export function Curve({ right }) {
  const shares = right.map((_, place) => {
    const recent = right.slice(Math.max(0, place + 1 - RECENT), place + 1);
    return recent.filter(Boolean).length / recent.length;
  });
  const x = (place) => 34 + (shares.length > 1 ? (place * 256) / (shares.length - 1) : 128);
  const y = (share) => 90 - 80 * share;
  return html`<svg class="curve" viewBox="0 0 300 112" role="img" aria-label=${`Share of right suggestions, most recent last: ${shares.slice(-10).map(percent).join(", ")}`}>
    ${[0, 0.5, 1].map((one) => html`<line x1="34" x2="290" y1=${y(one)} y2=${y(one)} /><text x="28" y=${y(one) + 3} text-anchor="end">${percent(one)}</text>`)}
    <text x="34" y="106">right among the last ${Math.min(RECENT, shares.length)}</text><text x="290" y="106" text-anchor="end">${counted(shares.length, "judgement")}</text>
    <polyline points=${shares.map((one, place) => `${x(place)},${y(one)}`).join(" ")} /><circle cx=${x(shares.length - 1)} cy=${y(shares.at(-1))} r="3.5" /></svg>`;
}

/** A modal dialog; `onClose` follows Escape, Cancel and the end of the action. */
export function Dialog({ title, action, children, onClose, onAction, danger }) {
  const box = useRef(null);
  const [fault, setFault] = useState("");
  useEffect(() => { box.current.showModal(); }, []);
  const submit = async (event) => { // after an error the dialog and its text stay
    event.preventDefault();
    if (await onAction(new FormData(event.target)) === false) setFault(state.message.text);
    else onClose();
  };
  return html`<dialog ref=${box} aria-label=${title} onClose=${onClose}>
    <form onSubmit=${submit}><h2>${title}</h2>${children}${fault && html`<p class="wrong" role="alert">${fault}</p>`}
      <p class="buttons"><button type="button" onClick=${onClose}>${action ? "Cancel" : "Close"}</button>
      ${action && html`<button type="submit" class=${danger ? "danger" : "primary"}>${action}</button>`}</p></form>
  </dialog>`;
}

/** A field that takes a text file by click or drop, read here and never uploaded as a file. */
export function FileField({ label, onText, accept = ".txt,.jsonl,.csv,text/*", keepsLabel }) {
  const [name, setName] = useState("");
  const take = async (event) => {
    const file = event.target.files[0];
    if (file) { setName(file.name); onText(await file.text(), file.name); }
    event.target.value = "";
  };
  return html`<label class="file"><input type="file" accept=${accept} onChange=${take} /><span>${(!keepsLabel && name) || label}</span></label>`;
}

/** Properties of an element on which a text file can be dropped. */
export const dropping = (onText) => ({
  onDragOver: (event) => event.preventDefault(),
  onDrop: async (event) => {
    const file = event.dataTransfer.files[0];
    if (file) { event.preventDefault(); onText(await file.text()); }
  },
});
