"""Valid files of every format that `erda` reads, with their readers: the inputs of `fuzz_readers.py`."""

from __future__ import annotations

import io
import json
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from erda.app.extractor import Extractor
from erda.corpus.sources import BuildSettings, open_source
from erda.data.fewrel_dataset import read_indices, read_relations
from erda.data.formats.jsonl_examples import read_relation_list
from erda.data.formats.row_collector import Reading
from erda.data.own_data import read_examples, read_own
from erda.settings.load import run_settings
from erda.text.names import NameTagger
from erda.text.reading import read_names

_TEXT = "Ann Lee, née Ödön, met {{Bob}} in Oslo. She was born in Paris 😀."
_MARKED = "[[Ann Lee]] was born in {{Oslo}}.\n{{Zoe\u0301}} met [[B. Roe]] in the U.S. in 1950!\n"
_TOKENS = {
    "tokens": ["Ann", "met", "Bob"],
    "head": {"span": [0, 1], "id": "Q1"},
    "tail": {"name": "Bob", "span": [2, 3]},
}
_ROWS = [
    {**_TOKENS, "id": "a", "relation": "met"},
    {"text": "Ann met Bob.", "head": {"span": [0, 3]}, "tail": {"span": [8, 11]}, "relation": None},
    {"text": "[[Ann]] left {{Oslo}}", "relation": "left_from", "source": "news"},
]
_PRODIGY = {
    "text": "Ann met Bob.",
    "tokens": [{"text": "Ann", "start": 0, "end": 3, "id": 0}, {"text": "Bob", "start": 8, "end": 11, "id": 1}],
    "spans": [{"start": 0, "end": 3, "token_start": 0, "token_end": 0, "label": "P"}],
    "relations": [{"head": 0, "child": 1, "label": "met", "head_span": {"start": 0, "end": 3}}],
    "answer": "accept",
    "_input_hash": 1,
}
_REGIONS = [
    {"type": "labels", "id": "x", "value": {"start": 0, "end": 3, "text": "Ann", "labels": ["P"]}},
    {"type": "labels", "id": "y", "value": {"start": 8, "end": 11, "text": "Bob", "labels": ["P"]}},
    {"type": "relation", "from_id": "x", "to_id": "y", "direction": "right", "labels": ["met"]},
]
_STUDIO = [
    {"id": 1, "data": {"text": "Ann met Bob.\nYes."}, "annotations": [{"result": _REGIONS, "was_cancelled": False}]}
]
_FEWREL = {
    "P19": [{"tokens": ["ann", " ", "of", "oslo"], "h": ["ann", "Q1", [[0]]], "t": ["oslo", "Q2", [[3], [2, 3]]]}]
}
_TACRED = [
    {"id": "1", "token": ["Ann", "-LRB-", "Bob"], "relation": "per:met", "subj_start": 0, "subj_end": 0}
    | {"obj_start": 2, "obj_end": 2, "subj_type": "PERSON"}
]
_ANSWER = {"id": "q:1", "line": 1, "text": "[[Ann]] met {{Bob}}.", "head": "Ann", "tail": "Bob", "relation": "met"} | {
    "confidence": 0.93,
    "ranked": [{"relation": "met", "confidence": 0.93}],
}
_BRAT = "T1\tPerson 0 3\tAnn\nT2\tPerson 8 11\tBob\nR1\tmet Arg1:T1 Arg2:T2\nN1\tReference T1 Wikidata:Q1\tAnn\n"
_CFRL = "3\t3 1 2\tann met bob in oslo\tann\t0\tbob in\t2 3\tQ1\tQ2\n1\t2\ta b c\ta\t0\tc\t2\t\t\n"
_TOML = 'dataset = "atlas"\nmethods = ["posterior"]\nseeds = [100, 110]\nshots = 5\n\n[settings]\nbatch_size = 16\n'
_OFFSETS = (
    'text;head_start;head_end;tail_start;tail_end;relation\r\nAnn met Bob.;0;3;8;11;met\r\n"a;\nb c";0;1;3;4;r\r\n'
)
_WIKI = """<mediawiki xmlns="http://www.mediawiki.org/xml/export-0.11/" version="0.11" xml:lang="en">
<siteinfo><dbname>enwiki</dbname><namespaces><namespace key="0"/><namespace key="14">Category</namespace></namespaces>
</siteinfo><page><title>Ann Lee</title><ns>0</ns><id>1</id><revision><text>'''Ann Lee''' met [[Bob Roe|Bob]] in
[[Oslo]].&lt;ref&gt;x&lt;/ref&gt; {{Infobox|a=[[b]]}} She [[left]] in {{date|1950}} with {| class="x" | y |} [[Zoë]].
</text></revision></page><page><title>B</title><ns>0</ns><redirect title="Ann Lee"/></page></mediawiki>
"""


def _lines(*rows: object) -> bytes:
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows).encode()


def _array() -> bytes:
    file = io.BytesIO()
    np.save(file, np.arange(1, 81))
    return file.getvalue()


def _read_names(path: Path) -> None:
    list(NameTagger(read_names(path))(_TEXT))


def _read_folder(path: Path) -> Reading:
    """Read the file as the `.ann` of a brat folder."""
    (path.parent / "x.txt").write_text("Ann met Bob. Yes.")
    return read_examples(path.parent / "x.ann", "brat")


def _read_pid2name(path: Path) -> object:
    (path.parent / "cfrl").mkdir(exist_ok=True)
    (path.parent / "cfrl/relation_name.txt").write_text("name\n")
    return read_relations(path.parent)


def _read_source(path: Path) -> None:
    """Read the file as a source of a corpus; plain text gets its entities from a list of names."""
    names = path.parent / "names.csv"
    names.write_text("Ann Lee\nBob\nOslo\n")
    for _ in open_source(path, BuildSettings(names=str(names))).batches(0):
        pass


def _store() -> dict[str, bytes]:
    """The files of a store with two relations and two versions, by their relative path."""
    with tempfile.TemporaryDirectory() as folder:
        extractor = Extractor.open(folder)
        extractor.teach("born in", ["[[Ann Lee]] was born in {{Oslo}}.", "[[Bob]] comes from {{Rome}}."])
        extractor.teach("met", ["[[Ann Lee]] met {{Bob}}."])
        files = [path for path in Path(folder).rglob("*") if path.is_file()]
        return {str(path.relative_to(folder)): path.read_bytes() for path in files}


STORE = _store()
_RELATION = min(name for name in STORE if name.startswith("objects/") and name.endswith(".json"))


def _read_store(path: Path) -> None:
    """Open a store in which the mutated file replaces the file of that name; read everything but arrays."""
    mutated_file, folder = path.read_bytes(), path.parent / "store"
    shutil.rmtree(folder, ignore_errors=True)
    for name, content in STORE.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(mutated_file if Path(name).name == path.name else content)
    extractor = Extractor.open(folder)
    extractor.history()
    for relation in extractor.relations:
        extractor.examples(relation.id)


@dataclass(frozen=True, slots=True)
class Target:
    """A format: the name and content of a valid file, and the reader."""

    name: str
    file: str
    content: bytes
    read: Callable[[Path], object]


TARGETS = (
    Target("jsonl", "x.jsonl", _lines(*_ROWS), read_examples),
    Target("csv", "x.csv", b'id,text,relation\r\n1,[[Ann]] met {{Bob}},met\r\n2,"[[a]], {{b}}",\r\n', read_examples),
    Target("csv with offsets", "x.csv", _OFFSETS.encode(), read_examples),
    Target("marked", "x.txt", _MARKED.encode(), read_examples),
    Target("prodigy", "x.jsonl", _lines(_PRODIGY, _PRODIGY), read_examples),
    Target("labelstudio", "x.json", json.dumps(_STUDIO, indent=1).encode(), read_examples),
    Target("brat", "x.ann", _BRAT.encode(), _read_folder),
    Target("cfrl", "x.txt", _CFRL.encode(), lambda path: read_examples(path, "cfrl")),
    Target("fewrel", "x.json", json.dumps(_FEWREL).encode(), read_examples),
    Target("tacred", "x.json", json.dumps(_TACRED).encode(), read_examples),
    Target("answers", "x.jsonl", _lines(_ANSWER, _ANSWER), read_examples),
    Target("dataset", "train.jsonl", _lines(*_ROWS), lambda path: read_own(path.parent)),
    Target("relations", "relations.json", _lines([{"id": "r", "name": "n", "index": 1}]), read_relation_list),
    Target("pid2name", "pid2name.json", _lines({"P1": ["name", "text"]}), _read_pid2name),
    Target("names", "x.txt", "Ann Lee\tQ1\nOslo\nÖdön\n".encode(), _read_names),
    Target("array", "x.npy", _array(), read_indices),
    Target("settings", "x.toml", _TOML.encode(), lambda path: run_settings(file=path)),
    Target("corpus rows", "x.jsonl", _lines(*_ROWS), _read_source),
    Target("corpus text", "x.txt", f"{_TEXT}\nAnn Lee met Bob.\n".encode(), _read_source),
    Target("corpus wikipedia", "x.xml", _WIKI.encode(), _read_source),
    Target("store", "extractor.json", STORE["extractor.json"], _read_store),
    Target("store version", "2.json", STORE["versions/2.json"], _read_store),
    Target("store relation", Path(_RELATION).name, STORE[_RELATION], _read_store),
)
