// Graph: the relations of the text, one node per name. Names of relations are boxes as well, so that none covers another.
import { html, useLayoutEffect, useMemo, useRef, useState } from "./vendor/preact-htm.js";
import { colourOf, nameOf } from "./state.js";
import { counted, percent, tidy } from "./text.js";

const MOST = 100; // arrows, the likeliest
const GAP = 14; // pixels between two boxes
const pen = document.createElement("canvas").getContext("2d");

export function Graph({ arrows }) {
  const box = useRef(null);
  const [width, setWidth] = useState(0);
  useLayoutEffect(() => {
    const watch = new ResizeObserver(() => setWidth(box.current?.clientWidth ?? 0));
    watch.observe(box.current);
    return () => watch.disconnect();
  }, []);
  const triples = triplesOf(arrows);
  const { parts, height } = useMemo(() => (width ? packed(triples.slice(0, MOST), width) : { parts: [], height: 0 }), [width, JSON.stringify(triples)]);
  const edges = parts.flatMap((one) => one.edges);
  return html`<div class="graph" ref=${box}>
    ${!triples.length && html`<p>No relation to draw.</p>`}
    <svg viewBox=${`0 0 ${width || 1} ${height || 1}`} height=${height} role="img" aria-label=${triples.map((one) => `${one.head} → ${nameOf(one.relation)} → ${one.tail}`).join("; ") || "No relation"}>
      ${edges.map((one) => html`<g class=${colourOf(one.relation)}><path class="line" d=${`M${one.from.x} ${one.from.y}L${one.label.x} ${one.label.y}L${one.to.x} ${one.to.y}`} />
        <path class="tip" transform=${tip(one.label, one.to)} d="M0 0l-9 -5v10z" /></g>`)}
      ${parts.flatMap((one) => one.nodes).map((one) => html`<${Box} key=${one.text} kind="node" ...${one} />`)}
      ${edges.map((one) => html`<${Box} kind=${`name ${colourOf(one.relation)}`} ...${one.label} title=${`${one.head} → ${nameOf(one.relation)} → ${one.tail}, ${percent(one.confidence)}`} />`)}</svg>
    <p class="quiet">${counted(triples.length, "relation")}; equal names share a node.${triples.length > MOST && ` The ${MOST} likeliest are drawn.`}</p></div>`;
}

const Box = ({ kind, x, y, w, h, text, title }) => html`<g class=${kind}><title>${title ?? text}</title><rect x=${x - w / 2} y=${y - h / 2} width=${w} height=${h} rx=${h / 2} />
  <text x=${x} y=${y + 4} text-anchor="middle">${short(text)}</text></g>`;

const short = (text) => (text.length > 28 ? `${text.slice(0, 27)}…` : text);

/** A box around a text. */
function boxOf(text, font, h) {
  pen.font = `${font} system-ui, sans-serif`;
  return { x: 0, y: 0, w: pen.measureText(short(text)).width + 20, h, text };
}

/** One triple for each statement of the text, the likeliest first. Names that differ in case share a node. */
function triplesOf(arrows) {
  const [spelling, found] = [new Map(), new Map()];
  const nameFor = (said) => { const name = tidy(said), key = name.toLowerCase(); if (!spelling.has(key)) spelling.set(key, name); return spelling.get(key); };
  for (const one of [...arrows].sort((a, b) => b.confidence - a.confidence)) {
    const triple = { head: nameFor(one.head_said), relation: one.relation, tail: nameFor(one.tail_said), confidence: one.confidence };
    const key = JSON.stringify([triple.head, triple.relation, triple.tail]);
    if (!found.has(key)) found.set(key, triple);
  }
  return [...found.values()];
}

/** Where a line from `from` enters the box `to`, and the angle there. */
function tip(from, to) {
  const [dx, dy] = [from.x - to.x, from.y - to.y];
  const share = Math.min(1, (to.w / 2) / Math.abs(dx || 1e-9), (to.h / 2) / Math.abs(dy || 1e-9));
  return `translate(${to.x + dx * share} ${to.y + dy * share}) rotate(${(Math.atan2(-dy, -dx) * 180) / Math.PI})`;
}

/** Lay out each connected part, and put the parts in rows from left to right. */
function packed(triples, width) {
  const parts = connected(triples).map((own) => laidOut(own, width)).sort((a, b) => b.h - a.h);
  let [x, y, high] = [0, 0, 0];
  for (const part of parts) {
    if (x && x + part.w > width) [x, y, high] = [0, y + high + 2 * GAP, 0];
    for (const one of part.boxes) { one.x += x; one.y += y; }
    [x, high] = [x + part.w + 2 * GAP, Math.max(high, part.h)];
  }
  return { parts, height: y + high };
}

/** Group triples that share names. */
function connected(triples) {
  let groups = [];
  for (const one of triples) {
    const touches = (group) => group.some((other) => [other.head, other.tail].some((name) => name === one.head || name === one.tail));
    groups = [...groups.filter((group) => !touches(group)), [...groups.filter(touches).flat(), one]];
  }
  return groups;
}

/** Place boxes by springs, starting from a circle, then move them apart: the same triples always give the same picture. */
function laidOut(triples, width) {
  const nodes = new Map([...new Set(triples.flatMap((one) => [one.head, one.tail]))].map((name) => [name, boxOf(name, "600 13px", 28)]));
  const edges = triples.map((one) => ({ ...one, from: nodes.get(one.head), to: nodes.get(one.tail), label: boxOf(nameOf(one.relation), "600 12px", 20) }));
  const boxes = [...nodes.values(), ...edges.map((one) => one.label)];
  [...nodes.values()].forEach((one, place) => { const turn = (2 * Math.PI * place) / nodes.size; [one.x, one.y] = [-150 * Math.cos(turn), 90 * Math.sin(turn)]; });
  edges.forEach(({ from, to, label }, place) => { [label.x, label.y] = [(from.x + to.x) / 2, (from.y + to.y) / 2 + (place % 5) - 2]; });
  const push = (a, b, force) => {
    const [dx, dy] = [a.x - b.x, a.y - b.y], length = Math.hypot(dx, dy) || 1, step = Math.max(-10, Math.min(10, force(length)));
    a.x += (dx / length) * step; a.y += (dy / length) * step; b.x -= (dx / length) * step; b.y -= (dy / length) * step;
  };
  for (let turn = 0; turn < 200; turn++) {
    boxes.forEach((a, i) => boxes.slice(i + 1).forEach((b) => push(a, b, (length) => 3000 / length ** 2)));
    for (const { from, to, label } of edges) for (const end of [from, to]) push(end, label, (length) => ((end.w + label.w) / 2 + GAP - length) * 0.1);
  }
  apart(boxes, width);
  const [left, top] = [Math.min(...boxes.map((one) => one.x - one.w / 2)), Math.min(...boxes.map((one) => one.y - one.h / 2))];
  for (const one of boxes) { one.x -= left; one.y -= top; }
  return { nodes: [...nodes.values()], edges, boxes, w: Math.max(...boxes.map((one) => one.x + one.w / 2)), h: Math.max(...boxes.map((one) => one.y + one.h / 2)) };
}

/** Move boxes until none covers another and all fit into the width; then there is always room below. */
function apart(boxes, width) {
  const [left, right] = [Math.min(...boxes.map((one) => one.x - one.w / 2)), Math.max(...boxes.map((one) => one.x + one.w / 2))];
  const [middle, scale] = [(left + right) / 2, Math.min(1, width / (right - left))];
  for (const one of boxes) one.x = (one.x - middle) * scale;
  for (let turn = 0, isMoved = true; isMoved && turn < 2_000; turn++) {
    isMoved = false;
    boxes.forEach((a, i) => boxes.slice(i + 1).forEach((b) => {
      const [dx, dy] = [b.x - a.x, b.y - a.y];
      const [x, y] = [(a.w + b.w) / 2 + GAP - Math.abs(dx), (a.h + b.h) / 2 + GAP - Math.abs(dy)];
      if (x <= 0.01 || y <= 0.01) return;
      isMoved = true;
      const [axis, step] = x < y && turn < 200 ? ["x", (x / 2) * (dx < 0 ? -1 : 1)] : ["y", (y / 2) * (dy < 0 ? -1 : 1)];
      a[axis] -= step; b[axis] += step;
    }));
    for (const one of boxes) one.x = Math.max((one.w - width) / 2, Math.min((width - one.w) / 2, one.x));
  }
}
