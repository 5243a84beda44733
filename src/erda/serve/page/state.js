// The state that all views share, and the actions that change it.
import { api } from "./api.js";
import { exampleOfAnswer, keyOf, newDocument, entityOf, markedText, namesOf, swapped } from "./text.js";

const MOST_CHARACTERS = 100_000; // of a text that the server reads at once

export const state = {
  view: "read",
  isLoaded: false,
  relations: [],
  version: 0,
  chosen: "", // the relation of the last teaching
  draft: "", // the text in the field of the view Read
  doc: null,
  answers: [], // of every ordered pair of entities in the text
  answered: 0, // the version of the answers
  changes: null, // what the last change did to them
  taught: null, // the last teaching, and the warnings of the server about it
  lately: [], // sentences taught in this visit, newest first
  message: { text: "", isFault: false, n: 0 },
  busy: 0,
  reading: null, // the share of a long text that was answered
};

let redraw = () => {};
export const onUpdate = (listener) => (redraw = listener);

export function update(changes) {
  Object.assign(state, changes);
  redraw();
}

export const say = (text, isFault = false) => update({ message: { text, isFault, n: state.message.n + 1 } });

/** Run an action; a failure becomes a message. Return its value, or undefined. */
export async function attempt(action) {
  update({ busy: state.busy + 1 });
  try {
    return await action();
  } catch (fault) {
    say(fault.message, true);
    return undefined;
  } finally {
    update({ busy: state.busy - 1 });
  }
}

export const colourOf = (relation) => {
  const place = state.relations.findIndex((one) => one.id === relation || one.name === relation);
  return place < 0 ? "none" : `r${place % 10}`;
};
export const nameOf = (relation) => state.relations.find((one) => one.id === relation)?.name ?? relation;

export async function loadRelations() {
  const { relations, version } = await api.relations();
  const chosen = relations.some((one) => one.id === state.chosen) ? state.chosen : (relations[0]?.id ?? "");
  update({ relations, version, chosen, isLoaded: true });
}

// -- the text of the view Read ------------------------------------------------------------------------------------

export const read = (text) =>
  attempt(async () => {
    if (!text.trim()) throw new Error("Paste a text first.");
    const n = Array.from(text).length;
    if (n > MOST_CHARACTERS) throw new Error(`The text has ${n.toLocaleString("en")} characters; Read shows at most ${MOST_CHARACTERS.toLocaleString("en")}. Review takes longer texts.`);
    update({ doc: newDocument(text, await api.entities(text)), answers: [], changes: null });
    await ask();
  });

export async function correct(doc) {
  update({ doc });
  await attempt(ask);
}

/** Ask for the relations of the text again, part by part; parts that did not change are not asked again. */
export async function ask() {
  let doc = state.doc;
  if (!doc || !state.relations.length) return update({ answers: [], answered: state.version });
  const [wanted, parts, kept] = [state.version, partsOf(doc), new Map()];
  let answers = [];
  try {
    for (const [place, part] of parts.entries()) {
      const key = JSON.stringify([wanted, part]);
      const found = asked.get(key) ?? (await api.extract(part.text, part.entities, "all", 5));
      if (state.doc !== doc || state.version !== wanted) return undefined; // corrected or taught meanwhile
      kept.set(key, found);
      answers = [...answers, ...found.answers.map((one) => named(shifted(one, part.start)))];
      doc = withEntities(doc, answers);
      update({ answers, answered: found.version, doc, reading: parts.length > 1 ? (place + 1) / parts.length : null });
    }
  } finally {
    if (state.doc === doc) { asked = kept; update({ reading: null }); }
  }
  return undefined;
}

let asked = new Map(); // answers of the parts of the text
const PART = 2_000; // characters; the first part is shorter, so that something is soon there

/** Parts of a text that end with a sentence, and the corrected entities in them. */
function partsOf(doc) {
  const starts = [0];
  for (const one of doc.sentences) if (one.start - starts.at(-1) > PART / (starts.length > 1 ? 1 : 4)) starts.push(one.start);
  return starts.map((start, place) => {
    const end = starts[place + 1] ?? doc.chars.length;
    const own = doc.entities.filter((one) => start <= one.start && one.end <= end);
    const entities = doc.corrected.some((at) => start <= at && at < end) ? own.map((one) => ({ span: [one.start - start, one.end - start], type: one.type })) : null;
    return { start, text: doc.chars.slice(start, end).join(""), entities };
  }).filter((one) => !one.entities || one.entities.length);
}

/** The whole text as a question to the server. */
export const questionOf = (doc) => ({ text: doc.text, ...(doc.corrected.length && { entities: doc.entities.map((one) => ({ span: [one.start, one.end], ...(one.type && { type: one.type }) })) }) });

const shifted = (one, by) => ({ ...one, head_start: one.head_start + by, head_end: one.head_end + by, tail_start: one.tail_start + by, tail_end: one.tail_end + by });

/** The document with the entities that only answers name, as resolved pronouns. */
function withEntities(doc, answers) {
  const known = new Set(doc.entities.map(keyOf));
  const places = answers.flatMap((one) => [placeOf(one, "head"), placeOf(one, "tail")]).filter((one) => !known.has(keyOf(one)));
  const more = [...new Map(places.map((one) => [keyOf(one), one])).values()];
  return more.length ? { ...doc, entities: [...doc.entities, ...more].sort((a, b) => a.start - b.start) } : doc;
}

export const placeOf = (answer, role) =>
  entityOf({ span: [answer[`${role}_start`], answer[`${role}_end`]], type: answer[`${role}_type`] });

/** A resolved pronoun is called by its name. */
const named = (one) => ({ ...one, head_said: one.head_resolved ?? one.head, tail_said: one.tail_resolved ?? one.tail });

/**
 * The arrows of some answers, one for each relation of a pair; of two directions the likelier one is drawn.
 * Without `least`, the thresholds of the extractor decide; with it, the likeliest relation of every pair that reaches it.
 */
export function arrowsOf(answers, least = null) {
  const ends = (from, to) => `${from} ${to}`;
  const best = new Map(answers.map((one) => [ends(one.head_start, one.tail_start), one]));
  return answers.flatMap((one) => {
    const confidence = (relation) => one.ranked.find((other) => other.relation === relation)?.confidence ?? one.confidence;
    const held = one.relations ?? (one.relation === null ? [] : [one.relation]);
    const found = least === null ? held : [...new Set([one.ranked[0].relation, ...held])].filter((relation) => confidence(relation) >= least);
    const other = best.get(ends(one.tail_start, one.head_start));
    const isLikelier = !other || (least === null && other.relation === null) || other.confidence < one.confidence || (other.confidence === one.confidence && one.head_start < one.tail_start);
    return isLikelier ? found.map((relation) => ({ ...one, relation, confidence: confidence(relation) })) : [];
  });
}

// -- changes ------------------------------------------------------------------------------------------------------

const WORTH_SAYING = 0.05; // a smaller change of a confidence is not listed

/** The pairs whose arrows differ between two lists of answers to the same text, the largest differences first. */
function compared(old, now) {
  const pairs = new Map();
  for (const [time, answers] of [["before", old], ["after", now]])
    for (const one of [...answers, ...arrowsOf(answers).map((arrow) => ({ ...arrow, isArrow: true }))]) {
      const key = [keyOf(placeOf(one, "head")), keyOf(placeOf(one, "tail"))].sort().join(" ");
      if (!pairs.has(key)) pairs.set(key, { key, before: [], after: [] });
      if (one.isArrow) pairs.get(key)[time].push(one);
    }
  const sameAs = (one) => (other) => other.head_start === one.head_start && other.relation === one.relation;
  const size = ({ before, after }) => Math.max(0,
    ...[...before, ...after].map((one) => (before.some(sameAs(one)) && after.some(sameAs(one)) ? 0 : 1)),
    ...before.map((one) => Math.abs(one.confidence - (after.find(sameAs(one))?.confidence ?? one.confidence))));
  const rows = [...pairs.values()].map((pair) => ({ ...pair, size: size(pair) })).filter((pair) => pair.size >= WORTH_SAYING);
  return { n: pairs.size, rows: rows.sort((a, b) => b.size - a.size) };
}

/** Run a change, read everything again, and compare the answers of both versions to the text. */
export const change = (action) =>
  attempt(async () => {
    const isRead = () => state.doc && state.reading === null && state.answered === state.version;
    const [before, text, old] = [state.version, state.doc?.text, isRead() ? state.answers : null];
    const done = await action();
    await loadRelations();
    say(done.message ?? `Version ${state.version}.`);
    update({ changes: null, taught: null });
    if (state.doc) await ask();
    if (old && state.version !== before && isRead() && state.doc.text === text)
      update({ changes: { before, after: state.version, ...compared(old, state.answers) } });
    return done;
  });

/** Teach; the server may warn about examples, which Swap then turns round. */
export const teach = (relation, examples, description = "") => taughtBy(relation, examples, description, async () => {});

/** Replace the last teaching: the examples that a warning names get head and tail exchanged. */
export const swapTaught = () => {
  const { relation, examples, description, version, warnings } = state.taught;
  const isNamed = (one) => examples.length === 1 || warnings.some((text) => namesOf(one).every((name) => text.includes(name)));
  return taughtBy(relation, examples.map((one) => (isNamed(one) ? swapped(one) : one)), description, async () => {
    if ((await api.relations()).version !== version) throw new Error("The extractor has changed since. Take the example back in Relations, and teach it again.");
    await api.undo();
    update({ lately: state.lately.slice(examples.length) });
  });
};

async function taughtBy(relation, examples, description, first) {
  const answer = await change(async () => {
    await first();
    const done = await api.teach({ relation, examples, description });
    const known = state.relations.find((one) => one.id === relation || one.name === relation);
    update({ chosen: known?.id ?? done.new?.[0] ?? relation });
    return done;
  });
  if (answer) update({ lately: [...examples.map((one) => ({ text: markedText(one), relation: state.chosen })), ...state.lately].slice(0, 20) });
  if (answer?.warnings?.length) update({ taught: { relation, examples, description, version: state.version, warnings: answer.warnings } });
  return answer;
}

export const judge = (answer, relation, holds) => change(() => api.judge(exampleOfAnswer(answer), relation, holds));

export const undo = (to) =>
  change(async () => {
    const { version } = await api.undo(to);
    return { message: `Version ${version} is current again.` };
  });
