// The page: navigation, messages, theme and help around the views.
import { html, render, useEffect, useState } from "./vendor/preact-htm.js";
import { History } from "./history.js";
import { Dialog, Names, useKeys } from "./parts.js";
import { Read } from "./read.js";
import { Relations } from "./relations.js";
import { Review } from "./review.js";
import { Space } from "./space.js";
import { attempt, loadRelations, onUpdate, state, update } from "./state.js";
import { Teach } from "./teach.js";

const VIEWS = {
  read: ["Read", Read], teach: ["Teach", Teach], review: ["Review", Review],
  relations: ["Relations", Relations], map: ["Map", Space], history: ["History", History],
};
const KEYS = [
  ["1 – 9", "choose the relation of the pair; relabel the selected arrow"], ["t", "Read: teach the statement"], ["Del", "reject the selected arrow; remove the focused entity"],
  ["y / n / s", "Review: yes, no, skip"], ["u", "undo the last change"], ["x", "swap head and tail"], ["h / t", "Teach: choose another head, another tail"],
  ["← →", "move between entities; with Shift, change the end of one"], ["Enter", "pick the focused entity"], ["Ctrl Enter", "read the text, find the entities, start the review"], ["Esc", "clear the selection"], ["?", "this list"],
];

function theme(wanted) {
  try { wanted ? localStorage.setItem("theme", wanted) : (wanted = localStorage.getItem("theme")); } catch { /* no storage */ }
  if (wanted) document.documentElement.dataset.theme = wanted;
  return wanted ?? (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light");
}

function App() {
  const [, redraw] = useState(0);
  const [shade, setShade] = useState(theme());
  const [isHelp, setHelp] = useState(false);
  onUpdate(() => redraw((n) => n + 1));
  useEffect(() => {
    const go = () => update({ view: location.hash.slice(1) in VIEWS ? location.hash.slice(1) : "read", message: { ...state.message, text: "" } });
    addEventListener("hashchange", go);
    go();
    attempt(loadRelations);
  }, []);
  useKeys((event) => event.key === "?" && setHelp(true));
  const other = shade === "dark" ? "light" : "dark";
  const [title, View] = VIEWS[state.view];
  document.title = `${title} – erda`;
  return html`<a class="skip" href="#main" onClick=${(event) => { event.preventDefault(); document.querySelector("main").focus(); }}>Skip to the content</a>
    <header><span class="brand"><img src="/page/icon.svg" alt="" width="22" height="22" />erda</span>
      <nav aria-label="Views">${Object.entries(VIEWS).map(([name, [text]]) => html`<a key=${name} href=${`#${name}`} aria-current=${state.view === name ? "page" : null}>${text}</a>`)}</nav>
      <span class="tools"><a class="version" href="#history" title="The version that answers; every change makes a new one">version ${state.version}</a>
        <button class="icon" aria-label="Keyboard shortcuts" onClick=${() => setHelp(true)}>?</button>
        <button class="icon" aria-label=${`Switch to the ${other} theme`} onClick=${() => setShade(theme(other))}>${shade === "dark" ? "☀" : "☾"}</button></span></header>
    <main tabindex="-1" aria-busy=${state.busy > 0}>${state.isLoaded ? html`<${View} key=${state.view} />` : !state.busy && html`<section class="panel narrow"><h1>No connection</h1>
      <p>${state.message.text}</p><p class="buttons"><button class="primary" onClick=${() => attempt(loadRelations)}>Try again</button></p></section>`}</main>
    <div class="message ${state.message.isFault ? "fault" : ""}" role="status" aria-live="polite">${state.message.text && html`<span key=${state.message.n}>${state.message.text}</span>`}</div>
    <${Names} />
    ${isHelp && html`<${Dialog} title="Keyboard shortcuts" onClose=${() => setHelp(false)} onAction=${() => {}}>
      <dl class="keys">${KEYS.map(([key, text]) => html`<div key=${key}><dt><kbd>${key}</kbd></dt><dd>${text}</dd></div>`)}</dl></${Dialog}>`}`;
}

document.getElementById("app").replaceChildren();
render(html`<${App} />`, document.getElementById("app"));
