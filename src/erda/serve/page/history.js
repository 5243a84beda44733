// History: versions, undo, download.
import { html, useEffect, useState } from "./vendor/preact-htm.js";
import { api } from "./api.js";
import { Chip, Marked } from "./parts.js";
import { attempt, loadRelations, state, undo } from "./state.js";

export function History() {
  const [versions, setVersions] = useState(null);
  useEffect(() => {
    attempt(async () => {
      const [{ version, versions: all }, found] = await Promise.all([api.history(), api.examples()]);
      setVersions(withSentences(all, found));
      if (version !== state.version) await loadRelations(); // changed elsewhere
    });
  }, [state.version]);
  if (!versions) return html`<section class="panel narrow"><h1>History</h1></section>`;
  const current = versions.find((one) => one.is_current);
  return html`<section class="panel" aria-label="Versions"><h1>History</h1>
      <p class="buttons"><button onClick=${() => undo()} disabled=${current?.parent == null}>Undo the last change</button>
        <a class="button" href="/v1/export" download>Download the current version</a></p>
      <p class="quiet">Every change makes a version, and none is lost: Return brings any of them back. The download answers without erda and without a network.</p>
      <div class="scroll" tabindex="0" role="region" aria-label="Table of versions"><table class="versions"><thead><tr><th>version</th><th>change</th><th>time</th><th>relations</th><th>examples</th><th></th></tr></thead>
        <tbody>${[...versions].reverse().map((one) => html`<tr key=${one.number} class=${one.is_current ? "current" : ""}>
          <td>${one.number}</td><td>${one.what}<${Sentences} rows=${one.sentences} /></td><td class="nowrap">${timeOf(one.time)}</td><td>${one.n_relations}</td><td>${one.n_examples}</td>
          <td>${one.is_current ? html`<strong>current</strong>` : html`<button aria-label=${`Return to version ${one.number}`} onClick=${() => undo(one.number)}>Return</button>`}</td></tr>`)}</tbody></table></div>
    </section>`;
}

/** Versions with the sentences that each of them taught; the current version holds those of its ancestors alone. */
function withSentences(versions, { examples, counterexamples }) {
  const rows = [...examples, ...counterexamples.map((one) => ({ ...one, isNot: true }))].sort((a, b) => a.number - b.number);
  const by = new Map(versions.map((one) => [one.number, { ...one, sentences: [] }]));
  for (let one = [...by.values()].find((found) => found.is_current); one; one = by.get(one.parent))
    one.sentences = rows.filter(({ number }) => number < one.n_lessons && number >= (by.get(one.parent)?.n_lessons ?? 0));
  return [...by.values()];
}

const MOST = 3; // sentences that are shown at once
const Sentence = ({ text, relation, isNot }) => html`<p><${Marked} text=${text} /> <${Chip} relation=${relation} />${isNot && html` <span class="quiet">does not hold</span>`}</p>`;
const Sentences = ({ rows }) => html`${rows.slice(0, MOST).map((one) => html`<${Sentence} key=${one.number} ...${one} />`)}
  ${rows.length > MOST && html`<details><summary>${rows.length - MOST} more</summary>${rows.slice(MOST).map((one) => html`<${Sentence} key=${one.number} ...${one} />`)}</details>`}`;

const timeOf = (time) => { const found = new Date(time); return Number.isNaN(found.getTime()) ? time : found.toLocaleString(undefined, { dateStyle: "medium", timeStyle: "short" }); };
