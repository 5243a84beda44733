// Offsets. The server counts Unicode code points, JavaScript counts UTF-16 units: a document keeps its code points.

export function newDocument(text, found) {
  const sentences = found.sentences.map(([start, end]) => ({ start, end }));
  const doc = { text, chars: Array.from(text), sentences, entities: [], hint: found.hint, tagger: found.tagger };
  return { ...doc, entities: withoutOverlaps(found.entities.map(entityOf)), corrected: [] }; // where a person has changed entities
}

export const entityOf = ({ span: [start, end], type }) => ({ start, end, type: type || null });
export const slice = (doc, { start, end }) => doc.chars.slice(start, end).join("");
export const keyOf = ({ start, end }) => `${start}-${end}`;
const overlap = (one, other) => one.start < other.end && other.start < one.end;

function withoutOverlaps(entities) {
  const kept = [];
  for (const one of [...entities].sort((a, b) => b.end - b.start - (a.end - a.start)))
    if (!kept.some((other) => overlap(one, other))) kept.push(one);
  return kept.sort((a, b) => a.start - b.start);
}

export function addEntity(doc, one) {
  const rest = doc.entities.filter((other) => !overlap(one, other));
  return { ...doc, corrected: [...doc.corrected, one.start], entities: [...rest, one].sort((a, b) => a.start - b.start) };
}

export function removeEntity(doc, one) {
  return { ...doc, corrected: [...doc.corrected, one.start], entities: doc.entities.filter((other) => keyOf(other) !== keyOf(one)) };
}

/** Mark every place where a name stands in the text, as whole words. */
export function addName(doc, name) {
  const wanted = Array.from(name.trim().toLowerCase());
  const chars = doc.chars.map((one) => one.toLowerCase());
  const isWord = (one) => one !== undefined && /[\p{L}\p{N}]/u.test(one);
  let found = doc;
  for (let start = 0; wanted.length && start + wanted.length <= chars.length; start++) {
    const end = start + wanted.length;
    const stands = wanted.every((one, place) => chars[start + place] === one);
    if (stands && !isWord(chars[start - 1]) && !isWord(chars[end])) found = addEntity(found, { start, end, type: null });
  }
  return found;
}

/** Widen a selection to whole words; null if it holds no word. */
export function wholeWords(doc, start, end) {
  const isSpace = (place) => /\s/.test(doc.chars[place] ?? " ");
  while (start < end && isSpace(start)) start++;
  while (end > start && isSpace(end - 1)) end--;
  if (start >= end) return null;
  while (start > 0 && !isSpace(start - 1)) start--;
  while (end < doc.chars.length && !isSpace(end)) end++;
  while (end > start + 1 && /[.,;:!?)\]"”’]/.test(doc.chars[end - 1])) end--;
  while (start < end - 1 && /[(["“‘]/.test(doc.chars[start])) start++;
  return { start, end, type: null };
}

/** The word at a place; a capitalised one with the capitalised words beside it. Null between words. */
export function nameAt(doc, place) {
  const at = (start) => wholeWords(doc, start, start + 1);
  const isName = (one) => one && /^\p{Lu}/u.test(slice(doc, one));
  const found = at(place) ?? at(place - 1);
  if (!isName(found)) return found;
  for (let next = at(found.end + 1); doc.chars[found.end] === " " && isName(next); next = at(found.end + 1)) found.end = next.end;
  for (let next = at(found.start - 2); next?.end === found.start - 1 && isName(next) && !doc.sentences.some((one) => one.start === next.start); next = at(found.start - 2)) found.start = next.start;
  return found;
}

/** Words of at least three letters that are no part of an entity. */
export function freeWords(doc) {
  const found = [];
  for (let start = 0, end = 0; start < doc.chars.length; start = end + 1) {
    for (end = start; end < doc.chars.length && /[\p{L}\p{N}'-]/u.test(doc.chars[end]); end++);
    const one = { start, end, type: null };
    if (end - start >= 3 && !doc.entities.some((other) => overlap(one, other))) found.push(one);
  }
  return found;
}

/** Grow or shrink the end of an entity by a word. */
export function resized(doc, one, direction) {
  const words = [...slice(doc, doc.sentences.find((s) => s.start <= one.start && one.end <= s.end)).matchAll(/\S+/gu)];
  const base = doc.sentences.find((s) => s.start <= one.start && one.end <= s.end).start;
  const text = slice(doc, { start: base, end: doc.chars.length });
  const ends = words.map((word) => base + Array.from(text.slice(0, word.index + word[0].length)).length);
  const trimmed = ends.map((end) => wholeWords(doc, end - 1, end)?.end ?? end).filter((end) => end > one.start);
  const wanted = direction > 0 ? trimmed.find((end) => end > one.end) : trimmed.filter((end) => end < one.end).pop();
  return wanted ? { ...one, end: wanted } : one;
}

/** An example for the server: the sentences that hold both entities, with character spans. */
export function exampleOf(doc, head, tail) {
  const inside = (sentence, one) => sentence.start <= one.start && one.start < sentence.end;
  const own = doc.sentences.filter((one) => inside(one, head) || inside(one, tail));
  const start = Math.min(head.start, tail.start, ...own.map((one) => one.start));
  const end = Math.max(head.end, tail.end, ...own.map((one) => one.end));
  const marked = (one) => ({
    span: [one.start - start, one.end - start],
    name: slice(doc, one),
    ...(one.type && { type: one.type }),
  });
  return { text: slice(doc, { start, end }), head: marked(head), tail: marked(tail) };
}

/** The example of an answer, by its tokens, so that the server meets exactly the same sentence. */
export function exampleOfAnswer(answer) {
  const role = (span, name, type) => ({ span, name, ...(type && { type }) });
  return {
    tokens: answer.tokens,
    head: role(answer.head_span, answer.head, answer.head_type),
    tail: role(answer.tail_span, answer.tail, answer.tail_type),
  };
}

/** Join tokens as a person writes them: "founded by Jobs ." becomes "founded by Jobs." */
export const tidy = (text) => text.replace(/ ([.,;:!?%)”’]+(?= |$|\]\]|\}\})|'\w*)/gu, "$1").replace(/([($“‘]) /gu, "$1").replace(/([\p{L}\p{N}]) ([-/]) (?=[\p{L}\p{N}])/gu, "$1$2");

/** The space that follows each token in the tidied sentence. */
export function spacesAfter(tokens) {
  const text = tidy(tokens.join(" "));
  let at = 0;
  return tokens.map((token) => {
    at += token.length;
    return text[at] === " " ? text[at++] : "";
  });
}

/** Split `[[head]] .. {{tail}}` into pieces for display. */
export function piecesOf(marked) {
  return tidy(marked).split(/(\[\[.*?\]\]|\{\{.*?\}\})/su).filter(Boolean).map((piece) => {
    if (/^\[\[.*\]\]$/su.test(piece)) return { role: "head", text: piece.slice(2, -2) };
    if (/^\{\{.*\}\}$/su.test(piece)) return { role: "tail", text: piece.slice(2, -2) };
    return { role: "", text: piece };
  });
}

/** An example as text with marks. */
export function markedText(example) {
  if (typeof example === "string") return example;
  const { tokens, text, head, tail } = example;
  const mark = (place, side, [first, second]) => (place === head.span[side] ? first : place === tail.span[side] ? second : "");
  return (tokens ?? Array.from(text)).map((one, place) => mark(place, 0, ["[[", "{{"]) + one + mark(place + 1, 1, ["]]", "}}"])).join(tokens ? " " : "");
}

/** An example with head and tail exchanged. */
export const swapped = (example) => (typeof example === "string"
  ? example.replace(/\[\[(.*?)\]\]|\{\{(.*?)\}\}/gsu, (_, head, tail) => (head === undefined ? `[[${tail}]]` : `{{${head}}}`))
  : { ...example, head: example.tail, tail: example.head });

/** The names of head and tail of an example. */
export const namesOf = (example) => (typeof example === "string"
  ? ["head", "tail"].map((role) => piecesOf(example).find((one) => one.role === role)?.text ?? "")
  : [example.head.name, example.tail.name]);

export const isMarked = (line) => /\[\[.+?\]\]/su.test(line) && /\{\{.+?\}\}/su.test(line);
export const percent = (value) => `${Math.round(100 * value)}\u00a0%`;
export const counted = (n, noun) => `${n} ${noun}${n === 1 ? "" : "s"}`;

/** A long text in parts that end with a line or a sentence, so that the progress of a job can be seen. */
export function parts(text, most = 20_000) {
  const found = [""];
  for (const line of text.split(/(?<=\n|[.!?]\s)/)) {
    if (found.at(-1) && found.at(-1).length + line.length > most) found.push("");
    found[found.length - 1] += line;
  }
  return found;
}

/** Sentences of a file: CSV or JSON lines with `text` (and `relation`), or one sentence per line. Rows with `"holds": false` are left out. */
export function examplesOfFile(content, name = "The file") {
  const lines = content.split(/\r?\n/).map((line, place) => [line, place + 1]).filter(([line]) => line.trim());
  if (!lines.length) throw new Error(`${name} is empty.`);
  if (/\.[ct]sv$/i.test(name)) return rowsOfTable(content, name);
  return lines.flatMap(([line, number]) => {
    if (!line.trimStart().startsWith("{") || line.trimStart().startsWith("{{")) return line;
    let row;
    try { row = JSON.parse(line); } catch { throw new Error(`${name}:${number}: not valid JSON.`); }
    return row.holds === false ? [] : Object.fromEntries(["text", "tokens", "head", "tail", "relation"].filter((one) => one in row).map((one) => [one, row[one]]));
  });
}

function rowsOfTable(content, name) {
  const mark = /\.tsv$/i.test(name) ? "\t" : /^[^\n]*;[^\n]*text|text[^\n]*;/.test(content) ? ";" : ",";
  const rows = [[""]]; // cells may be quoted and hold line breaks
  for (const [piece] of content.replace(/^\ufeff/, "").matchAll(new RegExp(`"(?:[^"]|"")*"|${mark}|\r?\n|[^"${mark}\r\n]+`, "g"))) {
    if (piece === mark) rows.at(-1).push("");
    else if (/^\r?\n$/.test(piece)) rows.push([""]);
    else rows.at(-1)[rows.at(-1).length - 1] += piece.startsWith('"') ? piece.slice(1, -1).replaceAll('""', '"') : piece;
  }
  const names = rows[0].map((one) => one.trim());
  if (!names.includes("text")) throw new Error(`${name}:1: no column is named text; the columns are ${names.join(", ")}.`);
  const value = (row, column) => row[names.indexOf(column)]?.trim() ?? "";
  return rows.slice(1).filter((row) => value(row, "text") && value(row, "holds") !== "false")
    .map((row) => ({ text: value(row, "text"), ...(value(row, "relation") && { relation: value(row, "relation") }) }));
}

/** A table as CSV; a cell that a spreadsheet would run as a formula is made text by an apostrophe. */
export function csvOf(rows) {
  const cell = (value) => `"${String(value).replace(/^[=+\-@\t\r]/, "'$&").replaceAll('"', '""')}"`;
  return rows.map((row) => row.map(cell).join(",")).join("\r\n") + "\r\n";
}

export function download(name, content, type) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([content], { type }));
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}
