// Relations: examples, counterexamples, types, thresholds; rename, describe, declare, merge, take back, forget.
import { html, useEffect, useState } from "./vendor/preact-htm.js";
import { api } from "./api.js";
import { loadExample } from "./read.js";
import { Chip, Dialog, Empty, Marked, PatternHint } from "./parts.js";
import { Quality } from "./quality.js";
import { attempt, change, nameOf, state, update } from "./state.js";
import { counted, download, percent, tidy } from "./text.js";

export function Relations() {
  const [open, setOpen] = useState(state.chosen);
  const [dialog, setDialog] = useState(null);
  const [found, setFound] = useState(null);
  const relation = state.relations.find((one) => one.id === open) ?? state.relations[0];
  useEffect(() => {
    setFound(null);
    if (relation) attempt(async () => setFound(await api.examples(relation.id)));
  }, [relation?.id, state.version]);
  if (!relation) return html`<section class="panel narrow"><h1>Relations</h1><${Empty} title="No relation is known yet">
    <p class="buttons"><a class="button" href="#teach">Teach a relation</a><button onClick=${loadExample}>Load the example</button></p></${Empty}></section>`;
  const ask = (kind) => () => setDialog(kind);
  return html`<div class="columns reversed"><nav class="panel list" aria-label="Relations"><h1>Relations</h1>
      <ul>${state.relations.map((one) => html`<li key=${one.id}><button class="row" aria-current=${one.id === relation.id ? "true" : null} onClick=${() => setOpen(one.id)}>
        <${Chip} relation=${one.id} /><span class="quiet">${one.n_examples}</span></button></li>`)}</ul>
      <p class="buttons"><button onClick=${saveAll}>Download all examples</button></p></nav>
    <div class="side"><section class="panel" aria-label=${relation.name}>
      <h1>${relation.name}</h1><p class="lines">${relation.description || html`<span class="quiet">No description.</span>`}</p>
      <p class="buttons"><button onClick=${ask("rename")}>Rename</button><button onClick=${ask("describe")}>Describe</button><button onClick=${ask("declare")}>Declare</button>
        ${state.relations.length > 1 && html`<button onClick=${ask("merge")}>Merge</button>`}<button onClick=${ask("forget")}>Forget</button></p>
      <dl class="facts"><div><dt>Types</dt><dd>${typesOf(relation, found)}</dd></div>
        <div><dt>Threshold</dt><dd>${relation.threshold == null ? "not tuned" : `answers need ${percent(relation.threshold)}`}</dd></div></dl>
      <${Lessons} title="Examples" rows=${found?.examples ?? []} />
      <${Lessons} title="Counterexamples" rows=${found?.counterexamples ?? []} />
    </section><${Quality} relation=${relation} /></div></div>
    ${dialog && html`<${Action} kind=${dialog} relation=${relation} onClose=${() => setDialog(null)} onDone=${setOpen} />`}`;
}

function typesOf(relation, found) {
  const declared = [relation.head_types, relation.tail_types].map((one) => (one?.length ? one.join(", ") : null));
  const seen = ["head_type", "tail_type"].map((role) => [...new Set((found?.examples ?? []).map((one) => one[role]).filter(Boolean))].join(", "));
  const [head, tail] = [declared[0] ?? seen[0], declared[1] ?? seen[1]];
  return head || tail ? `${head || "any"} → ${tail || "any"} (${declared.some(Boolean) ? "declared" : "of the examples"})` : "any";
}

/** Everything that was taught, as the JSON lines that `erda teach` reads. */
const saveAll = () => attempt(async () => {
  const { examples, counterexamples } = await api.examples();
  const rows = [...examples, ...counterexamples.map((one) => ({ ...one, holds: false }))];
  const line = ({ tokens, head, head_span, head_type, tail, tail_span, tail_type, relation, holds }) => JSON.stringify({
    tokens, head: { span: head_span, name: head, type: head_type }, tail: { span: tail_span, name: tail, type: tail_type }, relation, holds });
  download("examples.jsonl", `${rows.map(line).join("\n")}\n`, "application/jsonl");
});

const Lessons = ({ title, rows }) => html`<h2>${title} <span class="quiet">${rows.length}</span></h2>
  ${rows.length ? html`<ul class="rows">${rows.map((one) => html`<li key=${one.number} class="lesson"><${Marked} text=${one.text} />
    <button aria-label=${`Take back: ${tidy(one.head)}, ${tidy(one.tail)}`} onClick=${() => change(() => api.takeBack(one.number))}>Take back</button></li>`)}</ul>`
    : html`<p class="quiet">None.</p>`}`;

function Action({ kind, relation, onClose, onDone }) {
  const others = state.relations.filter((one) => one.id !== relation.id);
  const run = (form) => {
    const value = String(form.get("value") ?? "");
    const done = change({
      rename: async () => { await api.rename(relation.id, value); update({ chosen: value }); onDone(value); return { message: `Renamed to ${value}.` }; },
      describe: () => api.describe(relation.id, value),
      declare: async () => { await api.declare({ relation: relation.id, ...declaration(form) }); return { message: `Declared: ${relation.name}.` }; },
      merge: async () => { await api.merge(relation.id, value); onDone(value); return { message: `Merged into ${nameOf(value)}.` }; },
      forget: async () => { await api.forget(relation.id); return { message: `Forgotten: ${relation.name}. Undo brings it back.` }; },
    }[kind]);
    return kind === "describe" ? done.then(Boolean) : true;
  };
  const fields = {
    rename: () => html`<label for="value">New name</label><input id="value" name="value" required maxlength="200" autofocus value=${relation.name} />`,
    describe: () => html`<label for="value">Description</label><textarea id="value" name="value" rows="5" maxlength="5000" autofocus>${relation.description}</textarea><${PatternHint} />`,
    declare: () => html`<p>The types of its entities.</p>
      ${["head", "tail"].map((role) => html`<label for=${`${role}-types`}>Types of the ${role} <span class="quiet">separated by commas; empty: those of the examples</span></label>
        <input id=${`${role}-types`} name=${`${role}_types`} maxlength="1000" placeholder=${role === "head" ? "ORG" : "PERSON"} value=${(relation[`${role}_types`] ?? []).join(", ")} />`)}`,
    merge: () => html`<label for="value">Its examples and patterns move to</label><select id="value" name="value">${others.map((one) => html`<option value=${one.id}>${one.name}</option>`)}</select>`,
    forget: () => html`<p>${counted(relation.n_examples, "example")} will be dropped. Earlier versions still hold them.</p>`,
  };
  const words = { rename: "Rename", describe: "Describe", declare: "Declare", merge: "Merge", forget: "Forget" };
  return html`<${Dialog} title=${`${words[kind]} “${relation.name}”`} action=${words[kind]} danger=${kind === "forget"} onClose=${onClose} onAction=${run}>${fields[kind]()}</${Dialog}>`;
}

function declaration(form) {
  const types = (name) => String(form.get(name) ?? "").split(",").map((one) => one.trim()).filter(Boolean);
  return { head_types: types("head_types"), tail_types: types("tail_types") };
}
