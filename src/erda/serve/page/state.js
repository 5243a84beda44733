// The state that all views share, and the actions that change it.
import { api } from "./api.js";
import { exampleOfAnswer, keyOf, newDocument, entityOf } from "./text.js";

const MOST_SEEN = 120;
const MOST_CHARACTERS = 100_000; // of a text that the server reads at once

export const state = {
  view: "read",
  isLoaded: false,
  relations: [],
  version: 0,
  chosen: "", // the relation of the last teaching
  draft: "", // the text in the field of the view Read
  doc: null,
  answers: [],
  answered: 0, // the version of the answers
  seen: [], // sentences that were answered, with marks: a teaching is compared on them
  changes: null, // what the last teaching changed on them
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

export function remember(answers) {
  const seen = [...new Set([...answers.map((one) => one.text), ...state.seen])];
  update({ seen: seen.slice(0, MOST_SEEN) });
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
  if (!doc || !state.relations.length) return update({ answers: [] });
  const [wanted, parts, kept] = [state.version, partsOf(doc), new Map()];
  let answers = [];
  try {
    for (const [place, part] of parts.entries()) {
      const key = JSON.stringify([wanted, part]);
      const found = asked.get(key) ?? (await api.extract(part.text, part.entities, "all", 5));
      if (state.doc !== doc || state.version !== wanted) return undefined; // corrected or taught meanwhile
      kept.set(key, found);
      answers = [...answers, ...found.answers.flatMap((one) => eachRelation({ ...shifted(one, part.start), holds: holding(one, found.answers) }))];
      doc = withEntities(doc, answers);
      update({ answers, answered: found.version, doc, reading: parts.length > 1 ? (place + 1) / parts.length : null });
    }
  } finally {
    if (state.doc === doc) { asked = kept; update({ reading: null }); }
  }
  remember(answers);
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

/** One row for each relation that holds between a pair; a resolved pronoun is called by its name. */
function eachRelation(one) {
  const named = { ...one, head_said: one.head_resolved ?? one.head, tail_said: one.tail_resolved ?? one.tail };
  const confidence = (relation) => one.ranked.find((other) => other.relation === relation)?.confidence ?? one.confidence;
  return (one.relations ?? [one.relation]).map((relation) => ({ ...named, relation, confidence: relation === null ? one.confidence : confidence(relation) }));
}

/** Whether an answer is drawn: a relation holds, and the other direction is not likelier. */
function holding(answer, all) {
  if (answer.relation === null) return false;
  const other = all.find((one) => one.head_start === answer.tail_start && one.tail_start === answer.head_start);
  return !other || other.relation === null || other.confidence <= answer.confidence;
}

// -- changes ------------------------------------------------------------------------------------------------------

/** The answers of the current version to sentences with marks. */
const answersTo = async (texts) => (texts.length && state.relations.length ? (await api.predict(texts, 1)).answers : []);

/** Run a change, read everything again, and compare both versions on the sentences seen before. */
export const change = (action) =>
  attempt(async () => {
    const before = state.version;
    const old = await answersTo(state.seen);
    const done = await action();
    await loadRelations();
    say(done.message ?? `Version ${state.version}.`);
    update({ changes: null });
    if (state.doc) await ask();
    const now = state.version === before ? [] : await answersTo(old.map((one) => one.text));
    if (now.length) {
      const rows = now.map((one, place) => ({ text: one.text, before: old[place].relation, after: one.relation }));
      update({ changes: { before, after: state.version, n: rows.length, rows: rows.filter((one) => one.before !== one.after) } });
    }
    return done;
  });

export const teach = (relation, examples, description = "") =>
  change(async () => {
    const done = await api.teach({ relation, examples, description });
    const known = state.relations.find((one) => one.id === relation || one.name === relation);
    update({ chosen: known?.id ?? done.new?.[0] ?? relation });
    return done;
  });

export const judge = (answer, relation, holds) => change(() => api.judge(exampleOfAnswer(answer), relation, holds));

export const undo = (to) =>
  change(async () => {
    const { version } = await api.undo(to);
    return { message: `Version ${version} is current again.` };
  });
