// Map: taught examples in the plane of the encoder. Graph: the triples of the text that is read.
import { html, useEffect, useState } from "./vendor/preact-htm.js";
import { api } from "./api.js";
import { loadExample } from "./read.js";
import { Chip, Empty, Marked } from "./parts.js";
import { attempt, colourOf, nameOf, state } from "./state.js";
import { csvOf, download, percent } from "./text.js";

const SHAPES = ["M-5 0a5 5 0 1 0 10 0a5 5 0 1 0 -10 0", "M-4.5 -4.500h9v9h-9z", "M0 -6l5.500 10h-11z", "M0 -6l6 6l-6 6l-6 -6z"];

export function Space() {
  const [map, setMap] = useState(null);
  const [shown, setShown] = useState(null);
  const [isBefore, setBefore] = useState(false);
  useEffect(() => { if (state.relations.length) attempt(async () => setMap(await api.map())); }, [state.version, state.relations.length]);
  if (!state.relations.length) return html`<section class="panel narrow"><h1>Map</h1><${Empty} title="Nothing to draw yet"><p>Taught examples appear here as points, coloured by relation.</p>
    <p class="buttons"><button class="primary" onClick=${loadExample}>Load the example</button></p></${Empty}></section>`;
  const teachings = [...new Set((map?.points ?? []).map((one) => one.teaching))].sort((a, b) => a - b);
  const newest = teachings.length > 1 ? teachings.at(-1) : Infinity;
  const points = map?.points.filter((one) => !isBefore || one.teaching < newest) ?? [];
  const place = (relation) => Math.max(0, state.relations.findIndex((one) => one.id === relation));
  return html`<div class="columns"><section class="panel" aria-label="Map"><h1>Map of the examples</h1>
      <div class="bar-top"><span>${state.relations.map((one) => html`<${Chip} key=${one.id} relation=${one.id} /> `)}</span>
        <label class="slider"><input type="checkbox" checked=${isBefore} onChange=${(event) => setBefore(event.target.checked)} /> before the last teaching</label></div>
      <svg class="map" viewBox="-115 -115 230 230" role="group" aria-label="Examples by their vectors">
        ${points.map((one) => html`<g key=${one.number} class="point ${colourOf(one.relation)} ${one.teaching === newest ? "new" : ""} ${shown?.number === one.number ? "shown" : ""}"
          transform=${`translate(${100 * one.x} ${-100 * one.y})`} tabindex="0" role="button" aria-label=${`${nameOf(one.relation)}: ${one.head}, ${one.tail}`}
          onMouseEnter=${() => setShown(one)} onFocus=${() => setShown(one)} onClick=${() => setShown(one)}><path d=${SHAPES[Math.floor(place(one.relation) / 10) % 4]} /></g>`)}</svg>
      <p class="shown" aria-live="polite">${shown ? html`<${Chip} relation=${shown.relation} /> <${Marked} text=${shown.text} />` : html`<span class="quiet">Point at an example to read it.</span>`}</p>
      ${map && html`<p class="quiet">The plane shows ${percent(map.share)} of the variance. Ringed points belong to the last teaching.</p>`}
    </section><div class="side"><${Graph} /></div></div>`;
}

function Graph() {
  const triples = state.answers.filter((one) => one.holds);
  if (!triples.length) return html`<section class="panel" aria-label="Graph"><h2>Graph of the text</h2><p>Read a text to see its relations as a graph.</p>
    <p class="buttons"><a class="button" href="#read">Read a text</a></p></section>`;
  const nodes = laidOut(triples);
  const [top, bottom] = [Math.min(...[...nodes.values()].map((one) => one.y)) - 26, Math.max(...[...nodes.values()].map((one) => one.y)) + 14];
  const save = () => download("triples.csv", csvOf([["head", "relation", "tail", "confidence"], ...triples.map((one) => [one.head_said, nameOf(one.relation), one.tail_said, one.confidence])]), "text/csv");
  return html`<section class="panel" aria-label="Graph"><h2>Graph of the text</h2>
    <svg class="graph" viewBox=${`-150 ${top} 300 ${bottom - top}`} role="img" aria-label=${triples.map((one) => `${one.head_said} ${nameOf(one.relation)} ${one.tail_said}`).join("; ")}>
      ${triples.map((one) => { const [a, b] = [nodes.get(one.head_said), nodes.get(one.tail_said)]; return html`<g class=${colourOf(one.relation)}>
        <line x1=${a.x} y1=${a.y} x2=${b.x} y2=${b.y} /><path class="tip" transform=${`translate(${(a.x + b.x) / 2} ${(a.y + b.y) / 2}) rotate(${(Math.atan2(b.y - a.y, b.x - a.x) * 180) / Math.PI})`} d="M4 0l-8 -4v8z" /></g>`; })}
      ${[...nodes].map(([name, one]) => html`<g key=${name}><circle cx=${one.x} cy=${one.y} r="4" /><text x=${one.x} y=${one.y - 8} text-anchor="middle">${name.length > 22 ? `${name.slice(0, 21)}…` : name}</text></g>`)}</svg>
    <p>${[...new Set(triples.map((one) => one.relation))].map((one) => html`<${Chip} relation=${one} /> `)}</p>
    <p class="buttons"><button onClick=${save}>Download CSV</button></p></section>`;
}

const widthOf = (name) => 5.5 * Math.min(name.length, 22) + 6;

/** Move nodes until no name covers another name or node. */
function apart(named) {
  for (let turn = 0; turn < 60; turn++)
    named.forEach((a, i) => named.slice(i + 1).forEach((b) => {
      const [dx, dy] = [b[1].x - a[1].x, b[1].y - a[1].y];
      const [x, y] = [(widthOf(a[0]) + widthOf(b[0])) / 2 - Math.abs(dx), 22 - Math.abs(dy)];
      if (x <= 0 || y <= 0) return;
      const [axis, step] = x < y ? ["x", (x / 2) * (dx < 0 ? -1 : 1)] : ["y", (y / 2) * (dy < 0 ? -1 : 1)];
      a[1][axis] -= step; b[1][axis] += step;
    }));
}

/** Place nodes by springs, starting from a circle: the same triples always give the same picture. */
function laidOut(triples) {
  const names = [...new Set(triples.flatMap((one) => [one.head_said, one.tail_said]))];
  const nodes = new Map(names.map((name, place) => [name, { x: 100 * Math.cos((2 * Math.PI * place) / names.length), y: 100 * Math.sin((2 * Math.PI * place) / names.length) }]));
  const all = [...nodes.values()];
  const push = (a, b, force) => {
    const [dx, dy] = [a.x - b.x, a.y - b.y], length = Math.hypot(dx, dy) || 1, step = Math.max(-8, Math.min(8, force(length)));
    a.x += (dx / length) * step; a.y += (dy / length) * step; b.x -= (dx / length) * step; b.y -= (dy / length) * step;
  };
  for (let turn = 0; turn < 120; turn++) {
    all.forEach((a, i) => all.slice(i + 1).forEach((b) => push(a, b, (length) => 2600 / length ** 2)));
    triples.forEach((one) => push(nodes.get(one.head_said), nodes.get(one.tail_said), (length) => (60 - length) * 0.15));
    for (const one of all) { one.x *= 0.97; one.y *= 0.97; } // keeps separate parts together
  }
  apart([...nodes]);
  const most = Math.min(1, ...[...nodes].map(([name, one]) => (148 - widthOf(name) / 2) / Math.abs(one.x || 1)));
  for (const one of all) one.x *= most;
  return nodes;
}
