// Sentences with entities and arrows. Arrows run in lanes above the words, so they never cross text or each other's names.
import { html, useLayoutEffect, useRef, useState } from "./vendor/preact-htm.js";
import { colourOf, nameOf, placeOf } from "./state.js";
import { addEntity, keyOf, nameAt, percent, removeEntity, resized, slice, wholeWords } from "./text.js";

const LANE = 21; // pixels between two lanes
const ABOVE = 20; // between a word and its lowest lane: a tip fits below the name of an arrow
const GUTTER = 26; // right of the words, for arrows between lines
const pen = document.createElement("canvas").getContext("2d");

/** All sentences of a document. `head` and `tail` are the picked entities, `selected` the key of an arrow; `onWord` gets a word outside entities. */
export function Annotated({ doc, arrows, head, tail, selected, onPick, onSelect, onCorrect, onWord }) {
  const box = useRef(null);
  const hasSelected = useRef(false); // by the mouse, before its click
  const [entities, drawn] = [bySentence(doc, doc.entities, (one) => one.start), bySentence(doc, arrows, (one) => one.head_start)];
  const setOver = (key) => { // without a new render: a text may have a thousand sentences
    for (const one of box.current.querySelectorAll("[data-ends]")) one.classList.toggle("dim", key !== null && !one.dataset.ends.split(" ").includes(key));
  };
  const select = () => {
    const chosen = getSelection();
    if (!onCorrect || chosen.isCollapsed) return;
    const [start, end] = [offsetOf(chosen.anchorNode, chosen.anchorOffset), offsetOf(chosen.focusNode, chosen.focusOffset)];
    if (start === null || end === null) return;
    const found = wholeWords(doc, Math.min(start, end), Math.max(start, end));
    chosen.removeAllRanges();
    hasSelected.current = true;
    if (found) onCorrect(addEntity(doc, found));
  };
  const tap = (event) => {
    const isWord = onWord && !hasSelected.current && event.detail < 2 && !event.target.closest(".entity");
    hasSelected.current = false;
    const found = isWord ? nameAt(doc, offsetAt(event.clientX, event.clientY) ?? -1) : null;
    if (found) onWord(found);
  };
  return html`<div class="annotated" ref=${box} onMouseUp=${select} onClick=${tap} onKeyDown=${moveFocus}>
    ${doc.sentences.map((sentence) => html`<${Sentence} key=${sentence.start} ...${{ doc, sentence, head, tail, selected, setOver, onPick, onSelect, onCorrect }}
      own=${entities.get(sentence) ?? []} arrows=${drawn.get(sentence) ?? []} />`)}
  </div>`;
}

/** Rows by the sentence in which they start. */
function bySentence(doc, rows, startOf) {
  const found = new Map();
  for (const one of rows) {
    let [low, high] = [0, doc.sentences.length - 1];
    while (low < high) {
      const middle = (low + high + 1) >> 1;
      if (doc.sentences[middle].start <= startOf(one)) low = middle; else high = middle - 1;
    }
    const sentence = doc.sentences[low];
    if (sentence && startOf(one) < sentence.end) found.set(sentence, [...(found.get(sentence) ?? []), one]);
  }
  return found;
}

function Sentence({ doc, sentence, own, arrows, head, tail, selected, setOver, onPick, onSelect, onCorrect }) {
  const box = useRef(null);
  const [drawn, setDrawn] = useState([]);
  const [width, setWidth] = useState(0);
  const shape = `${width} ${arrows.map((one) => `${arrowKey(one)}${one.confidence}`)} ${own.map(keyOf)}`;
  useLayoutEffect(() => setDrawn(layOut(box.current, arrows)), [shape]);
  useLayoutEffect(() => {
    const watch = new ResizeObserver(() => setWidth(box.current?.clientWidth ?? 0));
    watch.observe(box.current);
    return () => watch.disconnect();
  }, []);
  const parts = [];
  let at = sentence.start;
  for (const one of own) {
    if (at < one.start) parts.push(html`<span key=${at} data-start=${at}>${slice(doc, { start: at, end: one.start })}</span>`);
    parts.push(html`<${EntityMark} key=${`e${keyOf(one)}`} ...${{ doc, one, head, tail, setOver, onPick, onCorrect }} />`);
    at = one.end;
  }
  if (at < sentence.end) parts.push(html`<span key=${at} data-start=${at}>${slice(doc, { start: at, end: sentence.end })}</span>`);
  return html`<div class="sentence" ref=${box}><p>${parts}</p>
    <svg aria-label="Relations" role="group">${[Line, Label].map((Part) => drawn.map((one) => html`<${Part} key=${arrowKey(one.arrow)} ...${one}
      onSelect=${() => onSelect(arrowKey(one.arrow))} isSelected=${selected === arrowKey(one.arrow)} />`))}</svg></div>`;
}

function EntityMark({ doc, one, head, tail, setOver, onPick, onCorrect }) {
  const key = keyOf(one);
  const role = head && keyOf(head) === key ? "head" : tail && keyOf(tail) === key ? "tail" : "";
  const press = (event) => {
    if (event.key === "Enter" || event.key === " ") onPick(one);
    else if (onCorrect && (event.key === "Delete" || event.key === "Backspace")) onCorrect(removeEntity(doc, one));
    else if (onCorrect && event.shiftKey && /^Arrow(Left|Right)$/.test(event.key))
      onCorrect(addEntity(removeEntity(doc, one), resized(doc, one, event.key === "ArrowRight" ? 1 : -1)));
    else return;
    event.preventDefault();
    event.stopPropagation();
  };
  const about = [one.type, role && `picked as ${role}`].filter(Boolean).join(", ");
  return html`<span class="entity" role="button" tabindex="0" data-start=${one.start} data-key=${key} data-role=${role}
    aria-pressed=${Boolean(role)} aria-description=${about || null} title=${one.type || null}
    onClick=${(event) => event.detail < 2 && getSelection().isCollapsed && onPick(one)} onKeyDown=${press}
    onMouseEnter=${() => setOver(key)} onMouseLeave=${() => setOver(null)}
    onFocus=${(event) => event.target.matches(":focus-visible") && setOver(key)} onBlur=${() => setOver(null)}>${slice(doc, one)}</span>`;
}

const endsOf = (arrow) => `${keyOf(placeOf(arrow, "head"))} ${keyOf(placeOf(arrow, "tail"))}`;
const classesOf = (kind, arrow, isSelected) => [kind, colourOf(arrow.relation), isSelected && "selected", arrow.confidence < 0.5 && "unsure"].filter(Boolean).join(" ");

/** The line of an arrow. All lines are drawn before all names, so that no line covers a name. */
const Line = ({ arrow, path, tip, isSelected, onSelect }) => html`<g class=${classesOf("stroke", arrow, isSelected)} data-ends=${endsOf(arrow)} onClick=${onSelect}>
  <path class="hit" d=${path} /><path class="line" d=${path} /><path class="tip" d="M${tip.x} ${tip.y}l-4.5 -8h9z" /></g>`;

/** The name of an arrow, which a person selects. */
function Label({ arrow, label, isSelected, onSelect }) {
  const press = (event) => {
    if (event.key !== "Enter" && event.key !== " ") return;
    event.preventDefault();
    onSelect();
  };
  const said = `${arrow.head_said} → ${nameOf(arrow.relation)} → ${arrow.tail_said}, ${percent(arrow.confidence)}`;
  return html`<g class=${classesOf("arrow", arrow, isSelected)} role="button" tabindex="0" aria-label=${said} aria-pressed=${isSelected} data-ends=${endsOf(arrow)}
    data-arrow=${arrowKey(arrow)} onClick=${onSelect} onKeyDown=${press} onFocus=${(event) => event.target.matches(":focus-visible") && onSelect()}><title>${said}</title>
    <rect x=${label.x - label.width / 2} y=${label.y - 9} width=${label.width} height="18" rx="9" />
    <text x=${label.x} y=${label.y + 4} text-anchor="middle">${label.text}</text></g>`;
}

export const arrowKey = (one) => `${one.head_start}>${one.tail_start} ${one.relation}`;

/** Move between entities with the arrow keys. */
function moveFocus(event) {
  if (event.shiftKey || !/^Arrow(Left|Right)$/.test(event.key) || !event.target.classList.contains("entity")) return;
  const all = [...event.currentTarget.querySelectorAll(".entity")];
  all[all.indexOf(event.target) + (event.key === "ArrowRight" ? 1 : -1)]?.focus();
  event.preventDefault();
}

/** The code point in the document at a place of the selection, or null outside a sentence. */
function offsetOf(node, offset) {
  const owner = (node.nodeType === Node.TEXT_NODE ? node.parentElement : node).closest("[data-start]");
  if (!owner) return null;
  const text = node.nodeType === Node.TEXT_NODE ? node.data.slice(0, offset) : "";
  return Number(owner.dataset.start) + Array.from(text).length;
}

/** The code point under a point of the window, or null. */
function offsetAt(x, y) {
  const found = document.caretPositionFromPoint?.(x, y) ?? document.caretRangeFromPoint?.(x, y); // Safari has the second
  return found && offsetOf(found.offsetNode ?? found.startContainer, found.offset ?? found.startOffset);
}

// -- lanes --------------------------------------------------------------------------------------------------------

/** Draw the arrows of a sentence: find lanes from the horizontal places, make room for them above each line, then measure heights. */
function layOut(box, arrows) {
  for (const one of box.querySelectorAll(".entity")) one.style.removeProperty("--up");
  const found = arrows.map((arrow) => ({ arrow, ends: ends(box, arrow) })).filter((one) => one.ends);
  spread(found);
  const lanes = assignLanes(found, box);
  for (const { ends: { head, tail } } of found)
    for (const one of [head, tail]) one.element.style.setProperty("--up", `${ABOVE + 14 + LANE * lanes.get(one.line)}px`);
  const right = box.clientWidth - GUTTER;
  const nTurns = found.filter((one) => one.segments.length > 1).length;
  let turns = 0;
  return found.map(({ arrow, ends: old, segments, label }) => {
    const now = ends(box, arrow);
    const shift = ({ x }, place) => ({ x, y: now[place].y });
    const [from, to] = [shift(old.head, "head"), shift(old.tail, "tail")];
    const heights = segments.map((one) => (one.end === "head" ? from : to).y - ABOVE - LANE * one.lane);
    const turn = segments.length > 1 ? right + 4 + ((GUTTER - 6) * ++turns) / (nTurns + 1) : null;
    const points = turn === null
      ? [from, { x: from.x, y: heights[0] }, { x: to.x, y: heights[0] }, { x: to.x, y: to.y - 2 }]
      : [from, { x: from.x, y: heights[0] }, { x: turn, y: heights[0] }, { x: turn, y: heights[1] }, { x: to.x, y: heights[1] }, { x: to.x, y: to.y - 2 }];
    return { arrow, path: rounded(points), tip: { x: to.x, y: to.y }, label: { ...label, y: heights[label.segment] } };
  });
}

/** The top of both entities in the box. */
function ends(box, arrow) {
  const origin = box.getBoundingClientRect();
  const top = (role) => {
    const element = box.querySelector(`[data-key="${keyOf(placeOf(arrow, role))}"]`);
    const rect = element?.getClientRects()[0];
    return rect && { element, left: rect.x - origin.x, width: rect.width, x: rect.x - origin.x + rect.width / 2, y: rect.y - origin.y, line: Math.round(rect.y) };
  };
  const [head, tail] = [top("head"), top("tail")];
  return head && tail ? { head, tail } : null;
}

/** Give each arrow of an entity its own place: the outer ones of nested arrows start outside, so that none crosses another. */
function spread(found) {
  const own = new Map();
  for (const { arrow, ends: { head, tail } } of found)
    for (const [key, end, other] of [[arrow.head_start, head, tail], [arrow.tail_start, tail, head]]) {
      const far = end.line === other.line ? other.left : Infinity; // another line is reached round the right edge
      own.set(key, [...(own.get(key) ?? []), { end, far, isRight: far > end.left }]);
    }
  for (const all of own.values())
    all.sort((a, b) => a.isRight - b.isRight || (b.far === a.far ? 0 : b.far - a.far))
      .forEach(({ end }, place) => { end.x = end.left + (end.width * (place + 1)) / (all.length + 1); });
}

/** Give each segment a lane in which it meets no other; return the highest lane of each line. */
function assignLanes(found, box) {
  const right = box.clientWidth - GUTTER;
  pen.font = "600 12px system-ui, sans-serif";
  const taken = [];
  for (const one of found) {
    const { head, tail } = one.ends;
    const text = `${nameOf(one.arrow.relation)} ${percent(one.arrow.confidence)}`;
    const width = Math.min(pen.measureText(text).width + 18, right);
    const isSame = head.line === tail.line;
    one.segments = isSame
      ? [{ end: "head", line: head.line, from: Math.min(head.x, tail.x), to: Math.max(head.x, tail.x) }]
      : [{ end: "head", line: head.line, from: head.x, to: right }, { end: "tail", line: tail.line, from: tail.x, to: right }];
    const segment = isSame || one.segments[0].to - one.segments[0].from > one.segments[1].to - one.segments[1].from ? 0 : 1;
    const middle = (one.segments[segment].from + one.segments[segment].to) / 2;
    const x = Math.max(width / 2, Math.min(middle, right + 18 - width / 2));
    one.label = { x, width, text, segment };
    const own = one.segments[segment];
    [own.from, own.to] = [Math.min(own.from, x - width / 2), Math.max(own.to, x + width / 2)];
  }
  const all = found.flatMap((one) => one.segments).sort((a, b) => a.to - a.from - (b.to - b.from));
  for (const one of all) {
    const clash = (lane) => taken.some((other) => other.lane === lane && other.line === one.line && one.from < other.to + 4 && other.from < one.to + 4);
    one.lane = 0;
    while (clash(one.lane)) one.lane++;
    taken.push(one);
  }
  const highest = new Map();
  for (const one of all) highest.set(one.line, Math.max(one.lane, highest.get(one.line) ?? 0));
  return highest;
}

/** A path through points with rounded corners. */
function rounded(points) {
  let path = `M${points[0].x} ${points[0].y}`;
  for (let place = 1; place < points.length - 1; place++) {
    const [before, corner, after] = points.slice(place - 1, place + 2);
    const radius = Math.min(6, distance(before, corner) / 2, distance(corner, after) / 2);
    const [enter, leave] = [toward(corner, before, radius), toward(corner, after, radius)];
    path += `L${enter.x} ${enter.y}Q${corner.x} ${corner.y} ${leave.x} ${leave.y}`;
  }
  const last = points.at(-1);
  return `${path}L${last.x} ${last.y}`;
}
const distance = (a, b) => Math.hypot(a.x - b.x, a.y - b.y);
const toward = (from, to, length) => {
  const share = length / (distance(from, to) || 1);
  return { x: from.x + (to.x - from.x) * share, y: from.y + (to.y - from.y) * share };
};
