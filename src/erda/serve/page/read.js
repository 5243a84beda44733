// Read: a text with its entities and relations, to correct and to teach from.
import { html, useEffect, useState } from "./vendor/preact-htm.js";
import { api } from "./api.js";
import { Annotated, arrowKey } from "./annotated.js";
import { EXAMPLES, TEXT } from "./example.js";
import { Bar, Changes, Chip, dropping, Empty, FileField, Marked, Picker, relationOfKey, Statement, useKeys } from "./parts.js";
import { arrowsOf, ask, attempt, change, correct, judge, nameOf, placeOf, questionOf, read, state, teach, undo, update } from "./state.js";
import { Graph } from "./graph.js";
import { addName, counted, csvOf, download, exampleOf, exampleOfAnswer, keyOf, percent, removeEntity, slice, spacesAfter } from "./text.js";

export const loadExample = () => attempt(async () => {
  if (!state.relations.length) await change(() => api.teach({ examples: EXAMPLES }));
  update({ draft: TEXT });
  await read(TEXT);
});

export function Read() {
  const [head, setHead] = useState(null);
  const [tail, setTail] = useState(null);
  const [selected, setSelected] = useState(null);
  const [least, setLeast] = useState(null); // null: the thresholds of the extractor
  const [isGraph, setGraph] = useState(false);
  const [chosen, setChosen] = useState(null); // the relation of the statement about the picked pair
  const [wanted, setWanted] = useState("");
  const { doc, answers } = state;
  const relation = chosen ?? state.chosen;
  const arrows = arrowsOf(answers, least).filter((one) => !wanted || one.relation === wanted);
  const arrow = arrows.find((one) => arrowKey(one) === selected);
  const pair = head && tail;
  const pairAnswer = pair && answers.find((one) => keyOf(placeOf(one, "head")) === keyOf(head) && keyOf(placeOf(one, "tail")) === keyOf(tail));
  const clear = () => { setHead(null); setTail(null); setSelected(null); };
  const pick = (one) => {
    setSelected(null);
    if (!head || tail) { setHead(one); setTail(null); }
    else if (keyOf(head) === keyOf(one)) clear();
    else setTail(one);
  };
  const label = async (relation) => { // what is picked meanwhile stays
    if (arrow) await judgeOrTeach(arrow, relation);
    else if (pair) await teach(relation, [exampleOf(doc, head, tail)]);
    setHead((now) => (now === head ? null : now)); setTail((now) => (now === tail ? null : now));
  };
  const choose = (name) => { // an arrow shows its direction; a pair is shown as a statement first
    if (arrow) label(name);
    else { setChosen(name); setTimeout(() => document.getElementById("teach-pair")?.focus(), 0); }
  };
  const swap = () => { setHead(tail); setTail(head); };
  const reject = async () => {
    const place = keyOf(placeOf(arrow, "head"));
    await judge(arrow, arrow.relation, false);
    setSelected(null);
    document.querySelector(`.entity[data-key="${place}"]`)?.focus({ preventScroll: true }); // the keyboard stays at its place
  };
  useEffect(() => { if (doc && answers.length && state.answered !== state.version) attempt(ask); }, []); // changed in another view
  useEffect(() => { // on a phone the panel covers the lower half
    const one = matchMedia("(max-width: 860px)").matches && document.querySelector(".arrow.selected, .entity[data-role=tail], .entity[data-role=head]");
    if (one) one.closest(".sentence").scrollIntoView({ block: "nearest" });
  }, [selected, head, tail]);
  useKeys((event) => {
    const numbered = relationOfKey(event);
    if (numbered && (arrow || pair)) choose(numbered);
    else if (arrow && /^(Delete|Backspace)$/.test(event.key)) reject();
    else if (arrow && event.key === "y") label(arrow.relation);
    else if (pair && event.key === "t" && relation) label(relation);
    else if (pair && event.key === "x") swap();
    else if (event.key === "u") undo();
    else if (event.key === "Escape") clear();
    else return;
    event.preventDefault();
  });
  if (!doc) return html`<${Start} />`;
  return html`<div class="columns"><section class="panel text" aria-label="Text">
      <div class="bar-top"><button onClick=${() => { clear(); update({ doc: null }); }}>Another text</button>
        <span class="choice" role="group" aria-label="Show">${[["Text", false], ["Graph", true]].map(([name, one]) => html`<button aria-pressed=${isGraph === one} onClick=${() => setGraph(one)}>${name}</button>`)}</span>
        <label class="slider">Confidence <input type="range" min="0" max="0.95" step="0.05" value=${least ?? 0.2} aria-valuetext=${least === null ? "default" : `at least ${percent(least)}`}
          onInput=${(event) => setLeast(Number(event.target.value))} /> <span>${least === null ? "default" : `≥ ${percent(least)}`}</span></label>
        ${least !== null && html`<button class="link" onClick=${() => setLeast(null)}>Default</button>`}
        ${state.relations.length > 1 && html`<label class="slider">Relation <select value=${wanted} onChange=${(event) => { clear(); setWanted(event.target.value); }}>
          <option value="">all</option>${state.relations.map((one) => html`<option key=${one.id} value=${one.id}>${one.name}</option>`)}</select></label>`}
        <${EntityField} doc=${doc} /></div>
      ${state.reading !== null && html`<p class="quiet" role="status"><progress value=${state.reading} aria-label="Reading"></progress> Finding relations: ${percent(state.reading)} of the text</p>`}
      ${isGraph ? html`<${Graph} arrows=${arrows} />` : html`<${Annotated} doc=${doc} arrows=${arrows} head=${head} tail=${tail} selected=${selected} onPick=${pick}
        onSelect=${(key) => { setHead(null); setTail(null); setSelected(key); }} onCorrect=${(found) => { clear(); correct(found); }} />
      <p class="quiet">Click two entities, then choose the relation between them. Select words to mark an entity; Delete removes the focused one.</p>`}
      ${doc.hint && html`<p class="quiet">${doc.hint}</p>`}
    </section>
    <div class="side">
      ${arrow || pair ? html`<section class="panel sheet" aria-label="Selected pair"><${Close} onClick=${clear} />
        <h2>${arrow ? html`${arrow.head_said} → ${arrow.tail_said}` : relation ? html`<${Statement} head=${slice(doc, head)} relation=${relation} tail=${slice(doc, tail)}>?</${Statement}>` : html`${slice(doc, head)} → ${slice(doc, tail)}`}</h2>
        ${arrow && html`<p><${Chip} relation=${arrow.relation} /> <${Bar} value=${arrow.confidence} label="confidence" /></p>`}
        <${Picker} label="Relation of this pair" onPick=${choose} current=${arrow ? arrow.relation : relation} />
        <p class="buttons">${arrow
          ? html`<button onClick=${() => label(arrow.relation)}>Right <kbd>y</kbd></button><button onClick=${reject}>Reject <kbd>Del</kbd></button>`
          : html`${relation && html`<button id="teach-pair" class="primary" onClick=${() => label(relation)}>Teach <kbd>t</kbd></button>`}<button onClick=${swap}>Swap <kbd>x</kbd></button>`}
          <button onClick=${() => undo()}>Undo <kbd>u</kbd></button></p>
        ${!arrow && !pairAnswer && state.relations.length > 0 && html`<p class="quiet">No answer for this pair: its entities are in different sentences, or one was just marked.</p>`}
        ${(arrow || pairAnswer) && html`<${Why} answer=${arrow || pairAnswer} />`}</section>`
      : head ? html`<section class="panel sheet" aria-label="Picked entity"><${Close} onClick=${clear} /><h2>${slice(doc, head)}</h2>
        <p>Picked as head${head.type ? ` (${head.type})` : ""}. Pick the tail next.</p>
        <p class="buttons"><button onClick=${() => { clear(); correct(removeEntity(doc, head)); }}>Not an entity</button></p></section>`
      : html`<${Changes} /><${Found} arrows=${arrows} least=${least} onSelect=${(key) => { setGraph(false); setSelected(key); }} />`}
      ${(arrow || pair || head) && html`<${Changes} />`}</div></div>`;
}

const Close = ({ onClick }) => html`<button class="icon close" aria-label="Close" title="Close (Esc)" onClick=${onClick}>×</button>`;

const judgeOrTeach = (answer, relation) => teach(relation, [exampleOfAnswer(answer)]);

function Start() {
  const go = (event) => { event?.preventDefault(); read(state.draft); };
  const take = (text) => { update({ draft: text }); read(text); };
  return html`<section class="panel narrow" ...${dropping(take)}>
    <h1>Read a text</h1>
    <form onSubmit=${go}>
      <label for="draft">Paste or drop a text. Entities and the relations between them are marked.</label>
      <textarea id="draft" rows="9" value=${state.draft} placeholder="Tesla was founded by Martin Eberhard…"
        onInput=${(event) => update({ draft: event.target.value })}
        onKeyDown=${(event) => event.key === "Enter" && (event.ctrlKey || event.metaKey) && go(event)}></textarea>
      <p class="buttons"><button class="primary" type="submit">Read <kbd>Ctrl Enter</kbd></button>
        <${FileField} label="Open a file" onText=${take} /></p>
    </form>
    ${!state.relations.length && html`<${Empty} title="No relation is known yet">
      <p>Teach one from a few sentences, or look around with a small example: three relations and a text. It can be undone.</p>
      <p class="buttons"><button class="primary" onClick=${loadExample}>Load the example</button><a class="button" href="#teach">Teach a relation</a></p></${Empty}>`}
    ${state.relations.length > 0 && html`<p class="quiet">${`${counted(state.relations.length, "relation")} known. `}
      <button class="link" onClick=${loadExample}>Load the example text</button></p>`}
  </section>`;
}

function EntityField({ doc }) {
  const [name, setName] = useState("");
  const add = (event) => {
    event.preventDefault();
    const found = addName(doc, name);
    if (found !== doc) { setName(""); correct(found); }
  };
  return html`<form class="inline" onSubmit=${add}><input aria-label="Add an entity by its name" placeholder="Add entity…" value=${name}
    onInput=${(event) => setName(event.target.value)} /><button type="submit">Add</button></form>`;
}

const FORMATS = { csv: "CSV", jsonl: "JSON lines", graphml: "GraphML", ttl: "Turtle", cypher: "Cypher" };

function Found({ arrows, least, onSelect }) {
  const [format, setFormat] = useState("csv");
  const rows = [...arrows].sort((a, b) => b.confidence - a.confidence);
  const save = (event) => {
    event.preventDefault();
    if (format === "csv") return download("relations.csv", csvOf([["head", "relation", "tail", "confidence", "sentence"],
      ...rows.map((one) => [one.head_said, nameOf(one.relation), one.tail_said, one.confidence, one.text])]), "text/csv");
    return attempt(async () => download(`relations.${format}`, await api.graph(format, { ...questionOf(state.doc), ...(least !== null && { min_confidence: least }) })));
  };
  return html`<section class="panel" aria-label="Relations found"><h2>Relations found</h2>
    ${rows.length > 0 && html`<form class="inline" onSubmit=${save}><select aria-label="Format" value=${format} onChange=${(event) => setFormat(event.target.value)}>
      ${Object.entries(FORMATS).map(([id, name]) => html`<option key=${id} value=${id}>${name}</option>`)}</select><button type="submit">Download</button></form>`}
    ${rows.length ? html`<ul class="rows">${rows.map((one) => html`<li key=${arrowKey(one)}><button class="row" onClick=${() => onSelect(arrowKey(one))}>
        <span>${one.head_said} → ${one.tail_said}</span><span><${Chip} relation=${one.relation} /> ${percent(one.confidence)}</span></button></li>`)}</ul>`
    : html`<p>${reasonForNone()}</p>`}</section>`;
}

function reasonForNone() {
  const { doc, answers, relations } = state;
  if (!relations.length) return "No relation is known yet. Click two entities and name the relation between them.";
  if (doc.entities.length < 2) return "A relation needs two entities in one sentence. Select words in the text to mark them.";
  if (!answers.length) return "No two entities share a sentence.";
  const best = answers.reduce((a, b) => (b.confidence > a.confidence ? b : a));
  return `No relation is likely enough. The nearest: ${best.head} → ${nameOf(best.ranked[0].relation)} → ${best.tail}, ${percent(best.confidence)}. Lower the confidence to see it.`;
}

/** Why this answer: similar examples, words that mattered, types, and the other candidates. */
export function Why({ answer }) {
  const [why, setWhy] = useState(null);
  useEffect(() => {
    let isCurrent = true;
    setWhy(null);
    api.explain(exampleOfAnswer(answer)).then((found) => isCurrent && setWhy(found), () => isCurrent && setWhy({ nearest: [], words: [] }));
    return () => { isCurrent = false; };
  }, [answer.text, state.version]);
  const types = [answer.head_type, answer.tail_type].filter(Boolean).join(" → ");
  const effects = new Map(why?.words.map((one) => [one.place, one.change]));
  const largest = Math.max(0.02, ...[...effects.values()].map(Math.abs));
  const spaces = spacesAfter(answer.tokens);
  const role = (place) => ["head", "tail"].find((one) => answer[`${one}_span`][0] <= place && place < answer[`${one}_span`][1]);
  const word = (text, place) => {
    const change = effects.get(place) ?? 0;
    const level = Math.round((3 * Math.abs(change)) / largest);
    if (role(place)) return html`<mark class=${role(place)}>${text}</mark>${spaces[place]}`;
    return html`<span class="word ${level ? (change < 0 ? "for" : "against") + level : ""}" title=${`without it: ${change > 0 ? "+" : ""}${Math.round(100 * change)} %`}>${text}</span>${spaces[place]}`;
  };
  return html`<section class="why" aria-label="Why this answer"><h3>Why this answer</h3>
    ${!why ? html`<p class="quiet">…</p>` : html`
    <h4>Words that mattered</h4><p class="words">${answer.tokens.map(word)}</p>
    <p class="quiet">Underlined words speak for the relation, dotted ones against it.</p>
    <h4>Closest examples</h4>
    <ul class="rows">${why.nearest.slice(0, 4).map((one) => html`<li key=${one.text}><${Marked} text=${one.text} /> <${Chip} relation=${one.relation} />
      <span class="quiet"> ${one.similarity.toFixed(2)}</span></li>`)}</ul>
    <h4>Candidates</h4>
    <ul class="rows">${answer.ranked.slice(0, 4).map((one) => html`<li key=${one.relation} class="candidate"><${Chip} relation=${one.relation} />
      <${Bar} value=${one.confidence} label=${nameOf(one.relation)} /></li>`)}</ul>
    ${types && html`<h4>Types</h4><p>${types}</p>`}`}</section>`;
}
