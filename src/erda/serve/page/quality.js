// Quality by labelled file: recall, precision and confusions of a relation, and thresholds fitted to a file.
import { html, useEffect, useState } from "./vendor/preact-htm.js";
import { api } from "./api.js";
import { Chip, Dialog, FileField } from "./parts.js";
import { attempt, change, state } from "./state.js";
import { counted, examplesOfFile, percent } from "./text.js";

let files = []; // of this visit: { name, examples, now, before }, answered again after every change
const ratio = (value) => (value == null ? "–" : percent(value));
const evaluated = async (examples) => ({ ...(await api.evaluate(examples)), of: state.version });

export function Quality({ relation }) {
  const [, redraw] = useState(0);
  const [isTuning, setTuning] = useState(false);
  const [tuned, setTuned] = useState(null);
  const keep = (changed) => { files = changed; redraw((n) => n + 1); };
  useEffect(() => {
    const stale = files.filter((one) => one.now.of !== state.version);
    if (stale.length) attempt(async () => {
      for (const one of stale) Object.assign(one, { before: one.now, now: await evaluated(one.examples) });
      redraw((n) => n + 1);
    });
  }, [state.version]);
  const add = (content, name) => attempt(async () => {
    const examples = examplesOfFile(content, name);
    const file = { name, examples, before: null, now: await evaluated(examples) };
    keep([...files.filter((one) => one.name !== name), file]);
  });
  const tune = (form) => change(async () => {
    const file = files[Number(form.get("file"))];
    const found = await api.tune(file.examples, Number(form.get("precision")) / 100);
    setTuned({ ...found, name: file.name });
    return { message: `Version ${found.version}: thresholds fitted to ${file.name}.` };
  });
  return html`<section class="panel" aria-label="Quality"><h2>Quality by file</h2>
    ${files.length > 0 ? html`<div class="scroll" tabindex="0" role="region" aria-label="Quality of each file"><table><thead><tr><th>file</th><th>questions</th><th>right</th><th>before</th><th>recall</th><th>precision</th><th></th></tr></thead>
      <tbody>${files.map((one) => html`<${FileRow} key=${one.name} file=${one} relation=${relation} onRemove=${() => keep(files.filter((other) => other !== one))} />`)}</tbody></table></div>
      <p class="quiet">Recall and precision are those of “${relation.name}”. <em>Before</em> is the result of the version before the last change.</p>
      <${Confusions} relation=${relation} />`
    : html`<p class="quiet">How good are the answers? Open a file of labelled sentences that were not taught: one JSON object per line, such as
      ${" "}<code>{"text": "[[Rome]] is the capital of {{Italy}}.", "relation": "capital of"}</code>, or a CSV file with the columns text and relation.</p>`}
    <p class="buttons"><${FileField} label="Open a labelled file" accept=".jsonl,.csv,.tsv,.txt" keepsLabel onText=${add} />
      ${files.length > 0 && html`<button onClick=${() => setTuning(true)}>Tune thresholds</button>`}</p>
    ${tuned && html`<p>Tuned on ${counted(tuned.n_rows, "question")} of ${tuned.name} for ${percent(tuned.precision)} precision: an answer needs a confidence of ${percent(tuned.threshold)}.
      ${" "}Expected in cross-validation: precision ${ratio(share(tuned.expected, "n_answered"))}, recall ${ratio(share(tuned.expected, "n"))}. Undo drops the thresholds.</p>`}
    ${isTuning && html`<${Dialog} title="Tune thresholds" action="Tune" onClose=${() => setTuning(false)} onAction=${tune}>
      <p>Fits confidence thresholds, so that most answers are right. Relations with at least 20 labelled questions get a threshold of their own.</p>
      <label for="tune-file">Labelled file</label><select id="tune-file" name="file">${files.map((one, place) => html`<option value=${place}>${one.name}</option>`)}</select>
      <label for="tune-precision">Share of answers that must be right, in percent</label><input id="tune-precision" name="precision" type="number" min="1" max="99" step="1" value="90" required /></${Dialog}>`}
  </section>`;
}

const share = ({ n_right, ...counts }, of) => (counts[of] ? n_right / counts[of] : null);

function FileRow({ file, relation, onRemove }) {
  const score = file.now.relations[relation.id];
  return html`<tr><td>${file.name}</td><td>${file.now.n}</td><td>${percent(file.now.accuracy)}</td><td>${ratio(file.before?.accuracy)}</td>
    <td>${ratio(score?.recall)}</td><td>${ratio(score?.precision)}</td>
    <td><button aria-label=${`Close ${file.name}`} onClick=${onRemove}>Close</button></td></tr>`;
}

function Confusions({ relation }) {
  const counts = new Map();
  for (const { truth, answer, n } of files.flatMap((one) => one.now.confusion))
    if (truth !== answer && (truth === relation.id || answer === relation.id)) {
      const key = JSON.stringify([truth, answer]);
      counts.set(key, (counts.get(key) ?? 0) + n);
    }
  const rows = [...counts].map(([key, n]) => [...JSON.parse(key), n]).sort((a, b) => b[2] - a[2]);
  if (!rows.length) return html`<p>No question is confused with “${relation.name}”.</p>`;
  return html`<table><caption>Confusions</caption><thead><tr><th>truth</th><th>answer</th><th>questions</th></tr></thead>
    <tbody>${rows.map(([truth, answer, n]) => html`<tr key=${`${truth} ${answer}`}><td><${Chip} relation=${truth} /></td><td><${Chip} relation=${answer} /></td><td>${n}</td></tr>`)}</tbody></table>`;
}
