// The example that a newcomer can load with one click.

export const TEXT = `Marie Curie was born in Warsaw. She later moved to Paris, the capital of France.
Tesla was founded by Martin Eberhard and Marc Tarpenning in 2003. Oslo is the capital of Norway.
Nokia was started by Fredrik Idestam, a mining engineer. Niels Bohr was born in Copenhagen.`;

const founded = ["[[Apple]] was founded by {{Steve Jobs}}.", "{{Bill Gates}} started [[Microsoft]] with a friend.",
  "[[Ikea]], founded by {{Ingvar Kamprad}}, sells furniture."];
const born = ["[[Albert Einstein]] was born in {{Ulm}}.", "{{Florence}} is where [[Dante]] was born.",
  "[[Ada Lovelace]], born in {{London}}, wrote the first program."];
const capital = ["[[Rome]] is the capital of {{Italy}}.", "The capital of {{Japan}} is [[Tokyo]].",
  "[[Lisbon]], the capital of {{Portugal}}, lies on the Tagus."];

export const EXAMPLES = Object.entries({ "founded by": founded, "born in": born, "capital of": capital })
  .flatMap(([relation, texts]) => texts.map((text) => ({ text, relation })));
