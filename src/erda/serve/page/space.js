// Map: taught examples in the plane of the encoder.
import { html, useEffect, useState } from "./vendor/preact-htm.js";
import { api } from "./api.js";
import { loadExample } from "./read.js";
import { Chip, Empty, Marked } from "./parts.js";
import { attempt, colourOf, nameOf, state } from "./state.js";
import { percent } from "./text.js";

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
  return html`<section class="panel" aria-label="Map"><h1>Map of the examples</h1>
      <div class="bar-top"><span>${state.relations.map((one) => html`<${Chip} key=${one.id} relation=${one.id} /> `)}</span>
        <label class="slider"><input type="checkbox" checked=${isBefore} onChange=${(event) => setBefore(event.target.checked)} /> before the last teaching</label></div>
      <svg class="map" viewBox="-115 -115 230 230" role="group" aria-label="Examples by their vectors">
        ${points.map((one) => html`<g key=${one.number} class="point ${colourOf(one.relation)} ${one.teaching === newest ? "new" : ""} ${shown?.number === one.number ? "shown" : ""}"
          transform=${`translate(${100 * one.x} ${-100 * one.y})`} tabindex="0" role="button" aria-label=${`${nameOf(one.relation)}: ${one.head}, ${one.tail}`}
          onMouseEnter=${() => setShown(one)} onFocus=${() => setShown(one)} onClick=${() => setShown(one)}><path d=${SHAPES[Math.floor(place(one.relation) / 10) % 4]} /></g>`)}</svg>
      <p class="shown" aria-live="polite">${shown ? html`<${Chip} relation=${shown.relation} /> <${Marked} text=${shown.text} />` : html`<span class="quiet">Point at an example to read it.</span>`}</p>
      ${map && html`<p class="quiet">The plane shows ${percent(map.share)} of the variance. Ringed points belong to the last teaching.</p>`}
    </section>`;
}
