// Teach: a relation by its name, a description and sentences.
import { html, useRef, useState } from "./vendor/preact-htm.js";
import { api } from "./api.js";
import { Annotated } from "./annotated.js";
import { loadExample } from "./read.js";
import { Changes, dropping, Empty, Marked, PatternHint, relationOfKey, Statement, useKeys } from "./parts.js";
import { attempt, nameOf, say, state, teach, undo } from "./state.js";
import { addEntity, counted, exampleOf, freeWords, isMarked, keyOf, namesOf, newDocument, removeEntity, swapped } from "./text.js";

const MOST_LINES = 200;

const draft = { relation: null, description: "", text: "", rows: [] }; // stays while other views are open

export function Teach() {
  const [relation, setRelation] = useState(draft.relation ?? nameOf(state.chosen));
  const [description, setDescription] = useState(draft.description);
  const [text, setText] = useState(draft.text);
  const [rows, setRows] = useState(draft.rows);
  const [at, setAt] = useState(0); // the row that keys change
  const field = useRef(null);
  const box = useRef(null);
  Object.assign(draft, { relation, description, text, rows });
  const known = state.relations.find((one) => one.name === relation.trim() || one.id === relation.trim());
  const byDescription = !known && description.trim() && !text.trim(); // its name and patterns are enough
  const focused = rows.findIndex((_, place) => box.current?.children[place]?.contains(document.activeElement));
  const active = () => (focused < 0 ? Math.min(at, rows.length - 1) : focused);
  const focusSoon = (find) => setTimeout(() => find()?.focus(), 0);

  const find = () => attempt(async () => {
    const lines = [...new Set(text.split("\n").map((one) => one.trim()).filter(Boolean))];
    if (byDescription) return done(relation, []);
    if (!lines.length) throw new Error("Type a sentence first.");
    if (lines.length > MOST_LINES) throw new Error(`${lines.length} sentences; at most ${MOST_LINES} at once.`);
    const found = await Promise.all(lines.map(prepared));
    setRows(found);
    setAt(Math.max(0, found.findIndex((row) => !isComplete(row))));
    focusSoon(() => document.getElementById("teach-now"));
  });
  const done = async (name, chosen) => {
    if (!name.trim()) { document.getElementById("relation").focus(); return say("Name the relation first.", true); }
    const open = chosen.find((row) => !isComplete(row));
    if (open) { setAt(rows.indexOf(open)); return say("Every sentence needs a head and a tail: click or tap their words.", true); }
    const answer = await teach(name.trim(), chosen.map(exampleOfRow), known ? "" : description.trim());
    if (!answer) return undefined;
    const rest = draft.rows.filter((row) => !chosen.includes(row)); // what was typed meanwhile stays
    setRows(rest);
    setText((now) => now.split("\n").filter((line) => !chosen.some((row) => row.line === line.trim())).join("\n"));
    setRelation((now) => (now === relation ? nameOf(state.chosen) : now));
    setDescription((now) => (now === description ? "" : now));
    if (!rest.length && !document.activeElement?.matches("input, textarea")) focusSoon(() => field.current);
    return undefined;
  };
  const replace = (place, row) => setRows(rows.map((one, other) => (other === place ? row : one)));
  useKeys((event) => {
    const numbered = relationOfKey(event);
    if (numbered && rows.length) setRelation(nameOf(numbered));
    else if (event.key === "x" && rows.length) replace(active(), swappedRow(rows[active()]));
    else if (/^[ht]$/.test(event.key) && rows[active()]?.doc) replace(active(), turned(rows[active()], event.key === "h" ? "head" : "tail"));
    else if (/^Arrow(Up|Down)$/.test(event.key) && rows.length && focused < 0) setAt(Math.max(0, Math.min(rows.length - 1, active() + (event.key === "ArrowUp" ? -1 : 1))));
    else if (event.key === "u") undo();
    else if (event.key === "Escape") { setRows([]); field.current.focus(); }
    else return;
    event.preventDefault();
  });
  return html`<div class="columns"><section class="panel" aria-label="Teach" ...${dropping(setText)}>
    <h1>Teach a relation</h1>
    <form onSubmit=${(event) => { event.preventDefault(); find(); }}>
      <label for="relation">Relation <span class="quiet">${known ? `${counted(known.n_examples, "example")} so far` : relation.trim() ? "new" : ""}</span></label>
      <input id="relation" list="relation-names" value=${relation} maxlength="200" placeholder="founded by" autocomplete="off" onInput=${(event) => setRelation(event.target.value)} />
      ${!known && html`<label for="description">Description <span class="quiet">optional</span></label>
        <textarea id="description" rows="2" value=${description} maxlength="5000" placeholder="the person who began an organisation" onInput=${(event) => setDescription(event.target.value)}></textarea><${PatternHint} />`}
      <label for="sentences">Sentences, one per line</label>
      <textarea id="sentences" ref=${field} rows="4" value=${text} placeholder="Tesla was founded by Martin Eberhard." onInput=${(event) => setText(event.target.value)}
        onKeyDown=${(event) => { if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) { event.preventDefault(); find(); } }}></textarea>
      <p class="buttons"><button type="submit" class=${rows.length ? "" : "primary"}>${byDescription ? "Teach" : "Find the entities"} <kbd>Ctrl Enter</kbd></button></p>
    </form>
    <div ref=${box}>${rows.map((row, place) => html`<div class="teach-row ${rows.length > 1 && place === Math.min(at, rows.length - 1) ? "current" : ""}" key=${row.line} onFocusIn=${() => setAt(place)}>
      ${row.marked ? html`<p><${Marked} text=${row.marked} /></p>`
        : html`<${Annotated} doc=${row.doc} arrows=${[]} head=${row.head} tail=${row.tail} onPick=${(one) => replace(place, picked(row, one))}
            onCorrect=${(doc) => replace(place, corrected(row, doc))} onWord=${(one) => replace(place, picked({ ...row, doc: addEntity(row.doc, one) }, one))} />`}
      ${isComplete(row) ? html`<p aria-live="polite"><${Statement} head=${namesOfRow(row)[0]} relation=${known?.id ?? (relation.trim() || "…")} tail=${namesOfRow(row)[1]}>?</${Statement}></p>`
        : html`<p class="quiet">${row.head || row.doc.entities.length > 1 ? "" : row.doc.entities.length ? "Only one entity was found. " : "No entity was found. "}Click or tap ${row.head ? "the tail" : "the head, then the tail"}.<span class="keyhint"> Select several words with the mouse, or press <kbd>h</kbd> or <kbd>t</kbd>.</span></p>`}
      <p class="buttons"><button onClick=${() => replace(place, swappedRow(row))}>Swap <kbd>x</kbd></button>
        <button onClick=${() => setRows(rows.filter((one) => one !== row))}>Leave out</button></p></div>`)}</div>
    ${rows.length > 0 && html`<p class="buttons"><button id="teach-now" class="primary" onClick=${() => done(relation, rows)}>
      Teach ${counted(rows.length, "sentence")} <kbd>Enter</kbd></button>
      </p><p class="quiet keyhint"><kbd>h</kbd> another head, <kbd>t</kbd> another tail, <kbd>x</kbd> swap${rows.length > 1 ? html`, <kbd>↑</kbd> <kbd>↓</kbd> another sentence` : ""}.${state.relations.length > 0 && " A number chooses the relation: "}${state.relations.slice(0, 9).map((one, place) => html`<span class="nowrap"><kbd>${place + 1}</kbd> ${one.name}</span> `)}</p>`}
    <p class="quiet">The head comes first in the relation: Tesla → founded by → Martin Eberhard. Marks can be typed: [[Tesla]] … {{Martin Eberhard}}.</p>
  </section>
  <div class="side"><${Changes} />
    ${state.lately.length > 0 ? html`<section class="panel" aria-label="Taught"><h2>Taught in this visit</h2>
      <ul class="rows">${state.lately.map((one) => html`<li key=${one.text}><${Marked} text=${one.text} /> <span class="quiet">${nameOf(one.relation)}</span></li>`)}</ul>
      <p class="buttons"><button onClick=${() => undo()}>Undo <kbd>u</kbd></button></p></section>`
    : !state.relations.length && html`<section class="panel"><${Empty} title="Three to five sentences are enough">
      <p>Name a relation, type a sentence in which it holds, press Ctrl+Enter, then Enter. The relation stays chosen for the next sentence.</p>
      <p class="buttons"><button onClick=${loadExample}>Load the example</button></p></${Empty}></section>`}
  </div></div>`;
}

async function prepared(line) {
  if (isMarked(line)) return { line, marked: line };
  const doc = newDocument(line, await api.entities(line));
  return { line, doc, ...firstTwo(doc) };
}

const firstTwo = (doc) => ({ head: doc.entities[0] ?? null, tail: doc.entities[1] ?? null });
const isComplete = (row) => Boolean(row.marked || (row.head && row.tail));
const exampleOfRow = (row) => row.marked ?? exampleOf(row.doc, row.head, row.tail);
const namesOfRow = (row) => namesOf(exampleOfRow(row));
const swappedRow = (row) => (row.marked ? { ...row, marked: swapped(row.marked) } : { ...row, head: row.tail, tail: row.head });

/** Choose the next entity as head or tail, but never the same for both; after the entities, the words from the last to the first. */
function turned(row, role) {
  const [old, other] = [row[role], row[role === "head" ? "tail" : "head"]];
  const doc = old && row.guesses?.includes(keyOf(old)) ? removeEntity(row.doc, old) : row.doc; // a word that was tried before
  const free = [...doc.entities, ...freeWords(doc).reverse()].filter((one) => !other || keyOf(one) !== keyOf(other));
  const one = free[(old ? free.findIndex((found) => keyOf(found) === keyOf(old)) + 1 : 0) % free.length];
  if (!one) return row;
  const isWord = !doc.entities.includes(one);
  return { ...row, doc: isWord ? addEntity(doc, one) : doc, guesses: [...(row.guesses ?? []), ...(isWord ? [keyOf(one)] : [])], [role]: one };
}

/** Keep head and tail after a correction; a new entity takes the place that is free. */
function corrected(row, doc) {
  const kept = (one) => doc.entities.find((other) => one && keyOf(other) === keyOf(one)) ?? null;
  const [head, tail] = [kept(row.head), kept(row.tail)];
  const free = doc.entities.filter((one) => one !== head && one !== tail);
  const fresh = free.find((one) => !row.doc.entities.some((other) => keyOf(other) === keyOf(one))) ?? free[0] ?? null;
  if (!head && !tail) return { ...row, doc, ...firstTwo(doc) };
  return { ...row, doc, head: head ?? fresh, tail: tail ?? fresh };
}

function picked(row, one) {
  if (!row.head || row.tail) return { ...row, head: one, tail: null };
  return keyOf(row.head) === keyOf(one) ? { ...row, head: null } : { ...row, tail: one };
}
