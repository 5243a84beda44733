"""The last part of the demo: teach an extractor four relations, ask it, teach a fifth, and ask again.

All people, companies and places are fictional.
"""

from __future__ import annotations

import shlex
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from erda.app.extractor import Extractor

LESSONS = {
    "founded by": (
        "[[Northwind Foods]] was founded by {{Clara Moss}} in 1987.",
        "{{Iven Sand}} started [[Tidal Systems]] in his parents' kitchen.",
        "In 1954 {{Greta Holm}} established the publisher [[Holm & Daughters]].",
        "[[Redleaf]], the company that {{Tom Arden}} set up after the war, makes bicycles.",
        "The bank [[Corvin]] goes back to its founder, {{Elias Corvin}}.",
    ),
    "capital of": (
        "[[Varnholm]] is the capital of {{Lethia}}.",
        "The government of {{Ostrava Minor}} sits in its capital, [[Pellworth]].",
        "{{Caldia}} moved its capital to [[Sant Brello]] in 1910.",
        "[[Quill]], capital and largest city of {{Marland}}, lies on a river.",
        "Parliament meets in [[Old Tarn]], the capital of {{Brevia}}.",
    ),
    "written by": (
        "[[The Salt Road]] is a novel by {{Hanna Oake}}.",
        "{{Piers Lund}} wrote [[A Winter Ledger]] in only six weeks.",
        "The play [[Seven Doors]], written by {{Mirela Stan}}, opened in May.",
        "{{Otto Brandt}}'s second book, [[Glass Orchard]], sold badly.",
        "[[The Lamplighter's Wife]] is the best known poem of {{Edith Rowe}}.",
    ),
    "plays for": (
        "Goalkeeper [[Ana Petrov]] plays for {{Harbour United}}.",
        "[[Luka Frey]] signed with {{Westmoor Rovers}} last summer.",
        "{{Silverdale FC}} bought the striker [[Jonas Weil]] for two million.",
        "After ten seasons [[Maya Torres]] still captains {{Eastport}}.",
        "[[Kofi Baird]] scored twice for {{Glen City}} on Sunday.",
    ),
}
FIFTH = {
    "born in": (
        "[[Selma Krog]] was born in {{Aldermere}} in 1931.",
        "A native of {{Tolvik}}, [[Rufus Hale]] studied law.",
        "{{Bern Hollow}} is the birthplace of the painter [[Ines Calder]].",
        "[[Victor Amsel]] came into the world in the village of {{Stone Ferry}}.",
        "Born in {{Marrow Bay}} to a fisherman, [[Dora Finch]] left school early.",
    )
}
QUESTIONS = {
    "founded by": (
        "The airline [[Skyreach]] was launched by {{Nadia Brook}} with one old plane.",
        "{{Felix Grant}} founded [[Grant Tools]] when he was nineteen.",
    ),
    "capital of": (
        "Tourists seldom leave [[Meridan]], the capital of {{Sorrel}}.",
        "[[Kestrel Bay]] became the capital of {{Ithland}} after independence.",
    ),
    "written by": (
        "In [[Paper Boats]], author {{Lena Voss}} returns to her childhood.",
        "[[The Quiet Engine]] was written by {{Samuel Pike}} in prison.",
    ),
    "plays for": (
        "Midfielder [[Rita Sol]] joined {{Norwell Athletic}} on loan.",
        "[[Ben Okoro]] made his first appearance for {{Hillgate}} in March.",
    ),
}
LAST_QUESTIONS = {
    "born in": (
        "The composer [[Alma Reed]] was born near the harbour of {{Linmouth}}.",
        "[[Oscar Vane]], born in {{Upper Dale}}, never saw the sea.",
    )
}
Questions = Mapping[str, Sequence[str]]


def demonstrate(folder: Path, *, show: Callable[[str], None]) -> None:
    """Teach and ask an extractor in a folder, and show its answers; an existing extractor is reset first."""
    extractor = Extractor.open(folder)
    if extractor.history():
        extractor.rollback(extractor.history()[0].number)
    show("An extractor of your own learns four relations, from five sentences each:")
    extractor.teach_many(LESSONS)
    for relation, sentences in LESSONS.items():
        show(f"  {relation:<11} {sentences[0]}")
    show("It answers questions about new sentences:")
    before = _ask(extractor, QUESTIONS, show)
    start = time.perf_counter()
    extractor.teach_many(FIFTH)
    show(f"A fifth relation, 'born in', is added by five more; that takes {time.perf_counter() - start:.1f} seconds.")
    new = _ask(extractor, LAST_QUESTIONS, show)
    after = _ask(extractor, QUESTIONS)
    n, n_new = sum(map(len, QUESTIONS.values())), sum(map(len, LAST_QUESTIONS.values()))
    kept = f"{before} of {n} before, {after} of {n} after"
    show(f"Correct relation ranked first: {kept} for the first four relations; {new} of {n_new} for the fifth.")
    show("A question mark means that the confidence is too low; the answer is then 'none'.")
    show("Ask it yourself:")
    question = "[[The Long Field]] is a story by {{Jane Marsh}}."
    show(f"  echo {shlex.quote(question)} | erda predict --store {shlex.quote(str(folder))}")


def _ask(extractor: Extractor, questions: Questions, show: Callable[[str], None] = lambda line: None) -> int:
    """Count the questions whose correct relation ranks first."""
    n_right = 0
    for relation, sentences in questions.items():
        for sentence, answer in zip(sentences, extractor.predict(sentences), strict=True):
            likeliest = answer.ranked[0].relation
            n_right += likeliest == relation
            wrong = "" if likeliest == relation else f"(not {relation}) "
            doubt = "?" if answer.relation is None else ""
            show(f"  {likeliest + doubt:<12}{100 * answer.ranked[0].confidence:3.0f} %  {wrong}{sentence}")
    return n_right
