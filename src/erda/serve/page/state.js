// The state that all views share, and the actions that change it.
import { api } from "./api.js";
import { exampleOfAnswer, keyOf, newDocument, entityOf } from "./text.js";

const MOST_SEEN = 120;

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
    update({ doc: newDocument(text, await api.entities(text)), answers: [], changes: null });
    await ask();
  });

export async function correct(doc) {
  update({ doc });
  await attempt(ask);
}

/** Ask for the relations of the text again. */
export async function ask() {
  const doc = state.doc;
  if (!doc || !state.relations.length) return update({ answers: [] });
  const entities = doc.corrected ? doc.entities.map(({ start, end, type }) => ({ span: [start, end], type })) : null;
  if (entities && !entities.length) return update({ answers: [] });
  const found = await api.extract(doc.text, entities, "all", 5);
  if (state.doc !== doc) return undefined; // corrected meanwhile
  const answers = found.answers.flatMap((one) => eachRelation({ ...one, holds: holding(one, found.answers) }));
  const places = answers.flatMap((one) => [placeOf(one, "head"), placeOf(one, "tail")]);
  const known = new Set(doc.entities.map(keyOf));
  const more = [...new Map(places.filter((one) => !known.has(keyOf(one))).map((one) => [keyOf(one), one])).values()];
  update({ answers, answered: found.version, doc: more.length ? { ...doc, entities: [...doc.entities, ...more].sort((a, b) => a.start - b.start) } : doc });
  remember(answers);
  return undefined;
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

async function compareSeen(before, after) {
  const { changes } = await api.compare(before, after, state.seen);
  update({ changes: { before, after, rows: changes } });
}

/** Run a change, read everything again, and compare both versions on the sentences seen before. */
export const change = (action) =>
  attempt(async () => {
    const before = state.version;
    const done = await action();
    await loadRelations();
    say(done.message ?? `Version ${state.version}.`);
    update({ changes: null });
    if (state.doc) await ask();
    if (before && state.version !== before && state.seen.length && state.relations.length) await compareSeen(before, state.version);
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
