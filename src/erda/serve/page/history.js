// History: versions, undo, download.
import { html, useEffect, useState } from "./vendor/preact-htm.js";
import { api } from "./api.js";
import { attempt, loadRelations, state, undo } from "./state.js";

export function History() {
  const [versions, setVersions] = useState(null);
  useEffect(() => {
    attempt(async () => {
      const { version, versions: all } = await api.history();
      setVersions(all);
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
          <td>${one.number}</td><td>${one.what}</td><td class="nowrap">${timeOf(one.time)}</td><td>${one.n_relations}</td><td>${one.n_examples}</td>
          <td>${one.is_current ? html`<strong>current</strong>` : html`<button aria-label=${`Return to version ${one.number}`} onClick=${() => undo(one.number)}>Return</button>`}</td></tr>`)}</tbody></table></div>
    </section>`;
}

const timeOf = (time) => { const found = new Date(time); return Number.isNaN(found.getTime()) ? time : found.toLocaleString(undefined, { dateStyle: "medium", timeStyle: "short" }); };
