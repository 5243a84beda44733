// History: versions, undo, compare two of them, download.
import { html, useEffect, useState } from "./vendor/preact-htm.js";
import { api } from "./api.js";
import { Chip, FileField, Marked } from "./parts.js";
import { attempt, loadRelations, state, undo } from "./state.js";
import { counted, csvOf, download, examplesOfFile, piecesOf } from "./text.js";

export function History() {
  const [versions, setVersions] = useState(null);
  const [chosen, setChosen] = useState({});
  const [compared, setCompared] = useState(null);
  useEffect(() => {
    attempt(async () => {
      const { version, versions: all } = await api.history();
      setVersions(all);
      if (version !== state.version) await loadRelations(); // changed elsewhere
    });
  }, [state.version]);
  if (!versions) return html`<section class="panel narrow"><h1>History</h1></section>`;
  const current = versions.find((one) => one.is_current);
  const taught = versions.filter((one) => one.n_relations);
  const before = chosen.before ?? (taught.find((one) => one.number === current?.parent) ?? taught[0])?.number;
  const after = chosen.after ?? (taught.find((one) => one.is_current) ?? taught.at(-1))?.number;
  const compare = (listed, name) => attempt(async () => {
    const examples = listed();
    const { changes } = await api.compare(before, after, examples);
    setCompared({ changes, name, n: examples.length, before, after });
  });
  const save = () => download(`versions-${compared.before}-${compared.after}.csv`, csvOf([["sentence", `version ${compared.before}`, `version ${compared.after}`],
    ...compared.changes.map((one) => [piecesOf(one.text).map((piece) => piece.text).join(""), one.before ?? "", one.after ?? ""])]), "text/csv");
  const select = (name, value) => html`<select aria-label=${name} value=${value} onChange=${(event) => setChosen({ ...chosen, [name]: Number(event.target.value) })}>
    ${taught.map((one) => html`<option key=${one.number} value=${one.number}>version ${one.number}</option>`)}</select>`;
  return html`<div class="columns"><section class="panel" aria-label="Versions"><h1>History</h1>
      <p class="buttons"><button onClick=${() => undo()} disabled=${current?.parent == null}>Undo the last change</button>
        <a class="button" href="/v1/export" download>Download the current version</a></p>
      <p class="quiet">Every change makes a version, and none is lost: Return brings any of them back. The download answers without erda and without a network.</p>
      <div class="scroll" tabindex="0" role="region" aria-label="Table of versions"><table class="versions"><thead><tr><th>version</th><th>change</th><th>time</th><th>relations</th><th>examples</th><th></th></tr></thead>
        <tbody>${[...versions].reverse().map((one) => html`<tr key=${one.number} class=${one.is_current ? "current" : ""}>
          <td>${one.number}</td><td>${one.what}</td><td class="nowrap">${timeOf(one.time)}</td><td>${one.n_relations}</td><td>${one.n_examples}</td>
          <td>${one.is_current ? html`<strong>current</strong>` : html`<button aria-label=${`Return to version ${one.number}`} onClick=${() => undo(one.number)}>Return</button>`}</td></tr>`)}</tbody></table></div>
    </section>
    <div class="side"><section class="panel" aria-label="Compare"><h2>Compare two versions</h2>
      ${taught.length < 2 ? html`<p>Two versions with relations are needed. Teach something first.</p>` : html`
      <p class="buttons">${select("before", before)} ${select("after", after)}</p>
      <p class="buttons"><${FileField} label="On a file" onText=${(content, name) => compare(() => examplesOfFile(content, name), name)} />
        <button disabled=${!state.seen.length || !state.relations.length} onClick=${() => compare(() => state.seen, "sentences seen in this visit")}>On sentences seen</button></p>
      <p class="quiet">A file has one sentence per line with [[head]] and {{tail}}, or is JSON lines or CSV with a column text.</p>`}
      ${compared && html`<h3>${counted(compared.changes.length, "different answer")} of ${compared.n}</h3><p class="quiet">${compared.name}</p>
        <ul class="rows">${compared.changes.slice(0, 50).map((one) => html`<li key=${one.text}><p><${Marked} text=${one.text} /></p>
          <p><${Chip} relation=${one.before} /> → <${Chip} relation=${one.after} /></p></li>`)}</ul>
        ${compared.changes.length > 0 && html`<p class="buttons"><button onClick=${save}>Download CSV</button></p>`}`}</section></div></div>`;
}

const timeOf = (time) => { const found = new Date(time); return Number.isNaN(found.getTime()) ? time : found.toLocaleString(undefined, { dateStyle: "medium", timeStyle: "short" }); };
