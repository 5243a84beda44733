"""Formats of annotation tools, and tables: ways of counting characters, skipped rows, faults with their lines."""

import csv
import io
import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import example as case
from hypothesis import strategies as st
from toy_examples import examples

from erda.data.formats.row_collector import Reading
from erda.data.own_data import describe, read_examples, write_examples
from erda.errors import DataError
from erda.text.descriptions import readable_name
from erda.text.marks import example_from_marks, example_to_marks
from erda.types import Entity, Example, Span

WORD = st.sampled_from(["Ann", "Oslo", "née", "東京", "😀", "👩‍🚀", "was", "the", "Ж", "U.S.", "--"])
GAP = st.sampled_from([" ", "  ", "\r\n", "\n", "\t", ". ", " 🎈 "])
Counting = Callable[[str, int], int]
COUNTINGS: dict[str, Counting] = {
    "code points": lambda text, at: at,
    "UTF-16": lambda text, at: len(text[:at].encode("utf-16-le")) // 2,
    "one for CRLF": lambda text, at: len(text[:at].replace("\r\n", "\n")),
    "as a browser": lambda text, at: len(text[:at].replace("\r\n", "\n").encode("utf-16-le")) // 2,
}


@st.composite
def documents(draw: st.DrawFn) -> tuple[str, list[tuple[int, int]]]:
    """Draw a text and two spans that begin and end with a word and do not overlap; head first or last."""
    words = draw(st.lists(WORD, min_size=2, max_size=9))
    text, starts, ends = draw(st.sampled_from(["", "🎈 ", "\r\n"])), [], []
    for word in words:
        starts.append(len(text))
        text += word
        ends.append(len(text))
        text += draw(GAP)
    cut = draw(st.integers(1, len(words) - 1))
    a, c = draw(st.integers(0, cut - 1)), draw(st.integers(cut, len(words) - 1))
    b, d = draw(st.integers(a, cut - 1)), draw(st.integers(c, len(words) - 1))
    spans = [(starts[a], ends[b]), (starts[c], ends[d])]
    return text, spans[:: draw(st.sampled_from([1, -1]))]


def words_of(text: str) -> str:
    return "".join(text.split())


def entity_words(example: Example, role: str) -> str:
    span = getattr(example, role).span
    return "".join(example.tokens[span.start : span.end])


def write_labelstudio(folder: Path, text: str, spans: list[tuple[int, int]], count: Counting) -> Path:
    results = [
        {
            "id": str(i),
            "value": {"start": count(text, a), "end": count(text, b), "text": text[a:b], "labels": ["Thing"]},
        }
        for i, (a, b) in enumerate(spans)
    ]
    results.append({"type": "relation", "from_id": "0", "to_id": "1", "labels": ["r"]})
    task = {"data": {"text": text}, "annotations": [{"result": results}]}
    (folder / "x.json").write_text(json.dumps([task]), encoding="utf-8")
    return folder / "x.json"


def write_prodigy(folder: Path, text: str, spans: list[tuple[int, int]], count: Counting) -> Path:
    about = {"label": "Thing"}
    head, tail = ({"start": count(text, a), "end": count(text, b), "text": text[a:b], **about} for a, b in spans)
    relation = {"head": 0, "child": 1, "head_span": head, "child_span": tail, "label": "r"}
    (folder / "x.jsonl").write_text(json.dumps({"text": text, "relations": [relation]}), encoding="utf-8")
    return folder / "x.jsonl"


def write_brat(folder: Path, text: str, spans: list[tuple[int, int]], count: Counting) -> Path:
    (folder / "x.txt").write_bytes(text.encode())
    lines = [
        f"T{i}\tThing {count(text, a)} {count(text, b)}\t{' '.join(text[a:b].split())}"
        for i, (a, b) in enumerate(spans)
    ]
    (folder / "x.ann").write_bytes("\n".join([*lines, "R1\tr Arg1:T0 Arg2:T1\t", ""]).encode())
    return folder / "x.ann"


TOOLS = {"labelstudio": write_labelstudio, "prodigy": write_prodigy, "brat": write_brat}


@pytest.mark.parametrize("tool", TOOLS)
@pytest.mark.parametrize("counting", COUNTINGS)
@given(document=documents())
def test_entities_are_found_for_every_way_of_counting(
    tmp_path_factory: pytest.TempPathFactory, tool: str, counting: str, document: tuple[str, list[tuple[int, int]]]
) -> None:
    text, spans = document
    folder = tmp_path_factory.mktemp("own")
    reading = read_examples(TOOLS[tool](folder, text, spans, COUNTINGS[counting]))
    assert reading.format == tool
    (example,) = reading.examples
    assert (example.relation, example.head.type, example.tail.type) == ("r", "Thing", "Thing")
    assert words_of("".join(example.tokens)) in words_of(text)
    for role, (start, end) in zip(("head", "tail"), spans, strict=True):
        assert entity_words(example, role) == words_of(text[start:end])


def test_names_of_a_table_are_found_in_the_text(tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    rows = ("Annex 1: Ann (Lee) met Ann Lee.,Ann (Lee),Ann,r", "[[Bo]] met {{Ann}}; Bo left.,Ann,Bo,r")
    path.write_text("\n".join(["text,head,tail,relation,head_type", *(f"{row},PER" for row in rows)]))
    first, marked = read_examples(path).examples
    assert (first.head.type, first.tail.type) == ("PER", None)
    assert (first.head.name, first.tail.name, first.tail.span.start) == ("Ann (Lee)", "Ann", 8)
    assert marked.head.name == "Bo", "marks in the text win"


@given(document=documents())
def test_offsets_in_a_table_count_characters(
    tmp_path_factory: pytest.TempPathFactory, document: tuple[str, list[tuple[int, int]]]
) -> None:
    text, spans = document
    path = tmp_path_factory.mktemp("own") / "x.csv"
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, delimiter=";")
        writer.writerow(["Text", "head_start", "head_end", "tail_start", "tail_end", "relation"])
        writer.writerow([text, *spans[0], *spans[1], "r"])
    (example,) = read_examples(path).examples
    assert words_of("".join(example.tokens)) == words_of(text)
    for role, (start, end) in zip(("head", "tail"), spans, strict=True):
        assert entity_words(example, role) == words_of(text[start:end])


@pytest.mark.parametrize("ending", [".csv", ".jsonl", ".jsonl.gz"])
@given(written=st.lists(examples(), min_size=1, max_size=4, unique_by=lambda one: one.id))
def test_written_examples_are_read_back(
    tmp_path_factory: pytest.TempPathFactory, ending: str, written: list[Example]
) -> None:
    path = tmp_path_factory.mktemp("own") / f"x{ending}"
    write_examples(path, written, overwrite=True)
    reading = read_examples(path, ending.split(".")[1])
    read = {example.id: example for example in reading.examples + reading.unrelated}
    assert len(read) + len(reading.duplicates) == len(written)
    for example in written:
        if not (found := read.get(example.id)):
            continue
        assert readable_name(found.relation or "") == readable_name(example.relation or "")
        if ending == ".csv":
            again = example_from_marks(example_to_marks(example))
            assert (found.tokens, found.head.span, found.tail.span) == (again.tokens, again.head.span, again.tail.span)
            assert (found.head.id, found.source) == (example.head.id, example.source)
        else:
            assert replace(found, relation=example.relation) == example


REGIONS = [
    {"id": "a", "type": "labels", "value": {"start": 0, "end": 3, "text": "Ann"}},
    {"id": "b", "type": "labels", "value": {"start": 8, "end": 11, "text": "Bob"}},
    {"id": "ab", "type": "labels", "value": {"start": 0, "end": 11, "text": "Ann met Bob"}},
]


def task(*relations: dict, text: str = "Ann met Bob.", **changes: object) -> dict:
    links = [{"type": "relation", "from_id": "a", "to_id": "b", "labels": ["meets"], **one} for one in relations]
    return {"id": 7, "data": {"text": text}, "annotations": [{"result": [*REGIONS, *links], **changes}]}


def read_json(folder: Path, value: object) -> Reading:
    path = folder / "x.json"
    path.write_text(json.dumps(value))
    return read_examples(path)


def test_label_studio_reverses_relations_and_counts_skipped_rows(tmp_path: Path) -> None:
    tasks = [
        task({"direction": "left"}),
        task({"direction": "bi", "labels": ["knows"]}),
        task({"labels": ["likes", "sees"]}),
        task({"labels": []}),
        task({"from_id": "ab"}),
        task(),
        task({}, was_cancelled=True),
        task({"labels": ["sees"]}),
    ]
    reading = read_json(tmp_path, tasks)
    assert [(one.head.name, one.relation, one.tail.name) for one in reading.examples] == [
        ("Bob", "meets", "Ann"),
        ("Ann", "knows", "Bob"),
        ("Bob", "knows", "Ann"),
        ("Ann", "likes", "Bob"),
        ("Ann", "sees", "Bob"),
    ]
    assert reading.left_out == {
        "the relation has no name": 1,
        "head and tail overlap": 1,
        "no relation is annotated": 1,
        "the annotation was skipped": 1,
    }
    assert len(reading.duplicates) == 1


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        (task({"to_id": "z"}), "task 7: a relation names region 'z', which this annotation does not have."),
        (task({}, text="Bob met Ann."), "entity (0, 3) is 'Bob' in the text, 'Ann' in the annotation"),
        (task({}, text="Ann"), "entity (8, 11) is not within the text (3 characters)."),
        ({"text": "Ann", "label": []}, "task 2: data: is missing. Export the project as JSON"),
        ({**task({}), "data": {"a": "x", "b": "y"}}, "Name the field 'text'."),
    ],
)
def test_an_invalid_task_is_reported(tmp_path: Path, bad: dict, message: str) -> None:
    with pytest.raises(DataError) as caught:
        read_json(tmp_path, [task({}), bad])
    assert message in str(caught.value)
    assert str(caught.value).startswith(f"{tmp_path / 'x.json'}:1: ")


def test_prodigy_uses_spans_around_tokens_and_rejected_rows_are_counterexamples(tmp_path: Path) -> None:
    tokens = [{"text": w, "start": a, "end": a + len(w)} for w, a in (("Ann", 0), ("Lee", 4), ("met", 8), ("Bo", 12))]
    row = {"text": "Ann Lee met Bo", "tokens": tokens, "relations": [{"head": 1, "child": 3, "label": "meets"}]}
    span = {"start": 0, "end": 7, "token_start": 0, "token_end": 1}
    rows = [row, {**row, "spans": [span]}, {**row, "answer": "ignore"}, {**row, "relations": []}]
    rejected = {**row, "answer": "reject"}
    rows += [rejected, {**rejected, "relations": row["relations"] * 2}]
    path = tmp_path / "x.jsonl"
    path.write_text("".join(json.dumps(one) + "\n" for one in rows))
    reading = read_examples(path)
    assert [one.head.name for one in reading.examples] == ["Lee", "Ann Lee"]
    reasons = ("the row was not accepted", "no relation is annotated", "the row was rejected and has several relations")
    assert reading.left_out == dict.fromkeys(reasons, 1)
    assert [(one.head.name, one.relation) for one in reading.counterexamples] == [("Lee", "meets")]
    path.write_text(json.dumps(row) + "\n" + json.dumps({**row, "tokens": []}))
    with pytest.raises(DataError, match=r"x\.jsonl:2: head 1 is out of range \(0 tokens\)\."):
        read_examples(path)


@pytest.mark.parametrize("name", ["x.json", "x.prodigy.jsonl", "prodigy.jsonl.gz"])
@given(spans=st.sets(st.permutations(range(6)).map(lambda some: tuple(some[:2])), min_size=1, max_size=5))
def test_annotation_tools_get_sentences_with_their_entities_and_relations(
    tmp_path_factory: pytest.TempPathFactory, name: str, spans: set[tuple[int, int]]
) -> None:
    texts = (("Ann", "née", "😀", "met", "Bo", "'s"), ("Ann", "saw", "U.S.", "東京", "in", "20th"))
    written = [
        Example(text, Entity(text[a], Span(a, a + 1), type="PER"), Entity(text[b], Span(b, b + 1)), relation)
        for text, relation in zip(texts, ("meets", None), strict=True)
        for a, b in sorted(spans)
    ]
    types = {(one.head.span, one.tokens): "PER" for one in written}
    path = tmp_path_factory.mktemp("own") / name
    write_examples(path, written, written[:1])
    reading = read_examples(path)
    assert reading.format == ("labelstudio" if name == "x.json" else "prodigy")
    assert len(reading.counterexamples) == (reading.format == "prodigy")
    read = [replace(one, id="") for one in (*reading.examples, *reading.unrelated, *reading.counterexamples)]
    none = "no_relation"
    assert read[: len(written)] == [replace(one, relation=one.relation or none) for one in written]
    assert set(read[len(written) :]) <= {written[0]}
    for one in read[: len(written)]:
        for entity in (one.head, one.tail):
            assert entity.type == types.get((entity.span, one.tokens))


@pytest.mark.parametrize("ending", ["jsonl", "csv"])
def test_rows_that_do_not_hold_are_written_and_read_back(tmp_path: Path, ending: str) -> None:
    right = example_from_marks("[[Ann]] met {{Bo}}", relation="meets", id="1")
    wrong = example_from_marks("[[Ann]] saw {{Bo}}", relation="meets", id="2")
    write_examples(tmp_path / f"x.{ending}", [right], [wrong])
    reading = read_examples(tmp_path / f"x.{ending}")
    assert (reading.examples, reading.counterexamples) == ((right,), (wrong,))
    text = (tmp_path / f"x.{ending}").read_text()
    (tmp_path / f"y.{ending}").write_text(text.replace("false", "maybe"))
    with pytest.raises(DataError, match=r"[23]: .*"):
        read_examples(tmp_path / f"y.{ending}")
    (tmp_path / f"z.{ending}").write_text(text.replace("meets", "no_relation"))
    with pytest.raises(DataError, match="name the relation that does not hold"):
        read_examples(tmp_path / f"z.{ending}")


def test_brat_reads_a_folder_across_sentences_with_ids(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes("\ufeffIt rained. Ann met Bob.\r\nHe left Oslo at once. Nobody knew.".encode())
    notes = ["T1\tPer 12 15\tAnn", "T2\tLoc 34 38\tOslo", "R1\tleft Arg1:T1 Arg2:T2", "N1\tReference T2 wd:Q585\tOslo"]
    left = [
        "T3\tPer 12 15;20 23\tAnn Bob",
        "E1\tMeet:T1",
        "R2\tr Arg1:T3 Arg2:T2",
        "R3\tr Arg1:E1 Arg2:T2",
        "#1\tNote T1\tx",
    ]
    (tmp_path / "a.ann").write_text("\n".join([*notes, *left, "*\tEquiv T1 T3"]))
    (tmp_path / "b.txt").write_text("Nothing.")
    (tmp_path / "b.ann").touch()
    reading = read_examples(tmp_path)
    (example,) = reading.examples
    assert " ".join(example.tokens) == "Ann met Bob . He left Oslo at once ."
    assert (example.head.name, example.tail.id, example.id) == ("Ann", "wd:Q585", "a:3")
    assert sorted(reading.left_out) == [
        "an argument is an event",
        "an entity has several fragments",
        "no relation is annotated",
    ]
    (tmp_path / "b.ann").write_text("T1\tPer 0 7\tNothing\nR1\tr Arg1:T1 Arg2:T9\nwhat is this\n\tPer 0 7\tNothing")
    with pytest.raises(DataError) as caught:
        read_examples(tmp_path)
    places = [line.split(": ")[0] for line in str(caught.value).splitlines()]
    assert places == [f"{tmp_path / 'b.ann'}:{line}" for line in (3, 4, 2)]
    (tmp_path / "b.txt").unlink()
    with pytest.raises(DataError, match=r"b\.txt: cannot be read"):
        read_examples(tmp_path)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("text,relation\n[[a]] b {{c}},r,x\n", ":2: 3 fields; the header names 2."),
        ('text,relation\n"[[a]]\nb {{c}}",r\n[[a]] {{b,r\n', ":4: '{{' is never closed"),
        ('text,relation\n[[a]] b {{c}},r\n"[[a]],r\n', ":3: not CSV: "),
        ("text,head_start\n", ":1: the header lacks head_end, tail_start, tail_end."),
        ("text,head,tail\nAnn met Bo,Ann,Carl\n", ":2: the tail 'Carl' does not occur in the text."),
        ("text,head,tail\nAnn Lee left,Ann Lee,Lee\n", ":2: the head 'Ann Lee' and the tail 'Lee' overlap"),
        ("text,text\n", ":1: the header names a column twice: text."),
        ("sentence,label\n", ":1: the header has no column 'text' (sentence, label)"),
        (
            "text,head_start,head_end,tail_start,tail_end\na b,0,1,2,x\n",
            ":2: tail_end: expected a whole number, got 'x'.",
        ),
        ("text,head_start,head_end,tail_start,tail_end\na b,0,1,2,9\n", ":2: tail span (2, 9) ends after the last"),
        ("text,id\n[[a]] b {{c}},1\n[[a]] d {{c}},1\n", ":3: id '1' was already used on line 2."),
    ],
)
def test_an_invalid_table_is_reported_with_its_line(tmp_path: Path, content: str, message: str) -> None:
    path = tmp_path / "x.csv"
    path.write_text(content)
    with pytest.raises(DataError) as caught:
        read_examples(path, "csv")
    assert str(caught.value).startswith(f"{path}{message}")


TRICKY = st.text(st.sampled_from("=+-@＝＠'\"; \t\r\n,a\u3000\ufeff\0"), min_size=1, max_size=12)


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(name=TRICKY, word=TRICKY)
@case(name="\n=1", word="b")  # regression: a line break was written without quotation marks
@case(name=" ＝1", word="x;=1")
def test_no_cell_is_a_formula_and_every_row_is_read_back(tmp_path: Path, name: str, word: str) -> None:
    written = Example((word, "a", "c", "d"), Entity("a", Span(1, 2)), Entity("d", Span(3, 4)), f"r{name}", "id", name)
    path = tmp_path / "x.csv"
    write_examples(path, [written, replace(written, id="2", tokens=(word, "a", "e", "d"))], overwrite=True)
    text = path.read_bytes().decode()
    assert text.count("\r\n") >= 3
    cells = [cell for row in csv.reader(io.StringIO(text, newline="")) for cell in row]
    cells += re.split(r"[;\t\r\n]", text)  # cells of a spreadsheet that does not split at commas
    assert not [cell for cell in cells if re.match(r"[\s\ufeff\0]*[=+\-@＝＠]", cell)]
    first, second = read_examples(path).examples
    assert (first.source, first.relation) == (name.strip() or None, f"r{name}".strip())
    assert " ".join(first.tokens).replace(" ", "").endswith("acd")
    assert second.id == "2"


def test_a_spreadsheet_export_is_read(tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    path.write_bytes('\ufeffText;Relation;note\r\n"[[Ann]]; aged 7,\r\nmet {{Bob}}";meets;\r\n;;\r\n'.encode())
    (example,) = read_examples(path).examples
    assert (example.head.name, example.tail.name, example.relation) == ("Ann", "Bob", "meets")
    assert example.id == "x:2"


def test_two_spellings_are_one_relation(tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    path.write_text("text,relation\n[[a]] b {{c}},founded by\n[[a]] d {{c}},founded_by\n")
    assert read_examples(path).counts == {"founded by": 2}
    (tmp_path / "relations.json").write_text('[{"id": "founded_by"}]')
    assert read_examples(path).counts == {"founded_by": 2}


def test_a_line_break_in_a_relation_forges_no_line_of_a_summary(tmp_path: Path) -> None:
    row = {"tokens": ["Ann", "met", "Bob"], "head": {"span": [0, 1]}, "tail": {"span": [2, 3]}, "relation": "a\nforged"}
    (tmp_path / "x.jsonl").write_text(json.dumps(row) + "\n")
    said = describe(read_examples(tmp_path / "x.jsonl")).split("\n")
    assert not any(line.startswith("forged") for line in said)
    assert any("a\\nforged" in line for line in said)
