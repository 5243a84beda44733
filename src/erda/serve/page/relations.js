// Relations: examples, counterexamples, types, thresholds and confusions; rename, merge, describe, take back, forget.
import { html, useEffect, useState } from "./vendor/preact-htm.js";
import { api } from "./api.js";
import { loadExample } from "./read.js";
import { Chip, Dialog, Empty, FileField, Marked } from "./parts.js";
import { attempt, change, nameOf, state, update } from "./state.js";
import { counted, examplesOfFile, percent } from "./text.js";

export function Relations() {
  const [open, setOpen] = useState(state.chosen);
  const [dialog, setDialog] = useState(null);
  const [found, setFound] = useState(null);
  const [quality, setQuality] = useState(null);
  const relation = state.relations.find((one) => one.id === open) ?? state.relations[0];
  useEffect(() => {
    setFound(null);
    if (relation) attempt(async () => setFound(await api.examples(relation.id)));
  }, [relation?.id, state.version]);
  if (!relation) return html`<section class="panel narrow"><h1>Relations</h1><${Empty} title="No relation is known yet">
    <p class="buttons"><a class="button" href="#teach">Teach a relation</a><button onClick=${loadExample}>Load the example</button></p></${Empty}></section>`;
  const score = quality?.relations[relation.id] ?? quality?.relations[relation.name];
  const isOwn = (name) => name === relation.id || name === relation.name;
  const confused = quality?.confusion.filter((one) => one.truth !== one.answer && (isOwn(one.truth) || isOwn(one.answer))) ?? [];
  const check = (content, name) => attempt(async () => setQuality({ ...(await api.evaluate(examplesOfFile(content))), name }));
  const ask = (kind) => () => setDialog(kind);
  return html`<div class="columns reversed"><nav class="panel list" aria-label="Relations"><h1>Relations</h1>
      <ul>${state.relations.map((one) => html`<li key=${one.id}><button class="row" aria-current=${one.id === relation.id ? "true" : null} onClick=${() => setOpen(one.id)}>
        <${Chip} relation=${one.id} /><span class="quiet">${one.n_examples}</span></button></li>`)}</ul></nav>
    <section class="panel" aria-label=${relation.name}>
      <h1>${relation.name}</h1><p>${relation.description || html`<span class="quiet">No description.</span>`}</p>
      <p class="buttons"><button onClick=${ask("rename")}>Rename</button><button onClick=${ask("describe")}>Describe</button>
        ${state.relations.length > 1 && html`<button onClick=${ask("merge")}>Merge</button>`}<button onClick=${ask("forget")}>Forget</button></p>
      <dl class="facts"><div><dt>Types</dt><dd>${typesOf(relation, found)}</dd></div>
        <div><dt>Threshold</dt><dd>${relation.threshold == null ? "the same for all relations" : percent(relation.threshold)}</dd></div>
        ${relation.symmetric && html`<div><dt>Direction</dt><dd>symmetric</dd></div>`}
        ${relation.inverse && html`<div><dt>Inverse</dt><dd>${nameOf(relation.inverse)}</dd></div>`}</dl>
      <${Lessons} title="Examples" rows=${found?.examples ?? []} />
      <${Lessons} title="Counterexamples" rows=${found?.counterexamples ?? []} />
      <h2>Quality on a labelled file</h2>
      <p class="buttons"><${FileField} label="Open JSON lines with text and relation" accept=".jsonl,.txt" onText=${check} /></p>
      ${quality && html`<p>${quality.name}: ${counted(quality.n, "question")}, ${percent(quality.accuracy)} right.
        ${score && ` Of this relation: recall ${ratio(score.recall)}, precision ${ratio(score.precision)}.`}</p>
        ${confused.length > 0 && html`<table><caption>Confusions</caption><thead><tr><th>truth</th><th>answer</th><th>times</th></tr></thead>
          <tbody>${confused.map((one) => html`<tr key=${`${one.truth} ${one.answer}`}><td><${Chip} relation=${one.truth} /></td><td><${Chip} relation=${one.answer} /></td><td>${one.n}</td></tr>`)}</tbody></table>`}`}
    </section></div>
    ${dialog && html`<${Action} kind=${dialog} relation=${relation} onClose=${() => setDialog(null)} onDone=${setOpen} />`}`;
}

const ratio = (value) => (value === null ? "–" : percent(value));

function typesOf(relation, found) {
  const declared = [relation.head_types, relation.tail_types].map((one) => (one?.length ? one.join(", ") : null));
  const seen = ["head_type", "tail_type"].map((role) => [...new Set((found?.examples ?? []).map((one) => one[role]).filter(Boolean))].join(", "));
  const [head, tail] = [declared[0] ?? seen[0], declared[1] ?? seen[1]];
  return head || tail ? `${head || "any"} → ${tail || "any"}` : "not known";
}

const Lessons = ({ title, rows }) => html`<h2>${title} <span class="quiet">${rows.length}</span></h2>
  ${rows.length ? html`<ul class="rows">${rows.map((one) => html`<li key=${one.number} class="lesson"><${Marked} text=${one.text} />
    <button aria-label=${`Take back: ${one.head}, ${one.tail}`} onClick=${() => change(() => api.takeBack(one.number))}>Take back</button></li>`)}</ul>`
    : html`<p class="quiet">None.</p>`}`;

function Action({ kind, relation, onClose, onDone }) {
  const others = state.relations.filter((one) => one.id !== relation.id);
  const run = (form) => {
    const value = String(form.get("value") ?? "");
    change({
      rename: async () => { await api.rename(relation.id, value); update({ chosen: value }); onDone(value); return { message: `Renamed to ${value}.` }; },
      describe: () => api.describe(relation.id, value),
      merge: async () => { await api.merge(relation.id, value); onDone(value); return { message: `Merged into ${nameOf(value)}.` }; },
      forget: async () => { await api.forget(relation.id); return { message: `Forgotten: ${relation.name}. Undo brings it back.` }; },
    }[kind]);
  };
  const fields = {
    rename: () => html`<label for="value">New name</label><input id="value" name="value" required maxlength="200" autofocus value=${relation.name} />`,
    describe: () => html`<label for="value">Description</label><textarea id="value" name="value" rows="3" maxlength="2000" autofocus>${relation.description}</textarea>`,
    merge: () => html`<label for="value">Its examples become examples of</label><select id="value" name="value">${others.map((one) => html`<option value=${one.id}>${one.name}</option>`)}</select>`,
    forget: () => html`<p>${counted(relation.n_examples, "example")} will be dropped. Earlier versions still hold them.</p>`,
  };
  const words = { rename: "Rename", describe: "Describe", merge: "Merge", forget: "Forget" };
  return html`<${Dialog} title=${`${words[kind]} “${relation.name}”`} action=${words[kind]} danger=${kind === "forget"} onClose=${onClose} onAction=${run}>${fields[kind]()}</${Dialog}>`;
}
