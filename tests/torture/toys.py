"""Small inputs of every kind that `erda` reads, so that a command takes a fraction of a second."""

from __future__ import annotations

import gzip
import json
import os
import random
import shutil
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

from processes import Call, ask

from erda.cli.main import main
from erda.encoders import ENCODERS
from erda.methods import METHODS

NAMES = ("ada", "bob", "carl", "dora", "eve", "fay")
WORDS = ("the", "of", "and", "in", "was", "who", "is", "city", "king")
SIGNS = tuple(f"sign{i}" for i in range(6))  # one word that identifies each relation
N_EACH = 12
NOTES = "what the user wrote\n"

SMALL = ["--encoder", "bilstm", "--set", "encoder.vectors=vectors.txt", "--set", "encoder.hidden_size=8"]
SMALL += ["--set", "way=2", "--set", "shots=4"]
RUN = ["run", "--dataset", "data.jsonl", "--method", "erda,seqrun", "--seeds", "100", *SMALL, "--keep-methods"]
RUN += ["--out", "run"]
BUILD = ["corpus", "build", "rows.jsonl", "--exclude", "data.jsonl", "--out", "corpus"]
TRAIN = ["corpus", "train", "rows.jsonl", "--encoder", "tiny", "--out", "adapter", "--set", "rank=4"]
TRAIN += ["--set", "batch_size=16", "--set", "save_steps=2", "--set", "max_pieces=32"]
INDEX = ["corpus", "index", "corpus", "--model", "adapter"]
AUGMENT = ["corpus", "augment", "data.jsonl", "--corpus", "corpus", "--model", "adapter", "--out", "extra.jsonl"]
FROZEN = ["run", "--dataset", "data.jsonl", "--method", "seqrun", "--encoder", "tiny", "--seeds", "100", "--out", "far"]
FROZEN += ["--set", "encoder.mode=paper", "--set", "cache_dir=cache", "--set", "n_tasks=2"]
FROZEN += ["--set", "way=2", "--set", "shots=4"]
TEACH = ["teach", "--file", "data.jsonl", "--encoder", "tiny", "--store", "store"]
MORE = ["teach", "r9", "[[ada]] the city {{bob}}", "[[eve]] who is {{fay}}", "--store", "store"]
REJECT = ["teach", "r0", "[[ada]] the sign3 {{bob}}", "--not", "--store", "store"]
TUNE = ["tune", "labelled.jsonl", "--precision", "0.1", "--store", "store"]
PREDICT = ["predict", "many.jsonl", "--store", "store", "--out", "answers.csv", "--overwrite"]
CONFIG = """\
dataset = "data.jsonl"
shots = 4
methods = ["erda", "seqrun"]
seeds = [100]
way = 2

[settings]
batch_size = 5
erda.memory_size = 1
encoder.hidden_size = 8
encoder.vectors = "vectors.txt"
"""


def make_toys(folder: Path) -> None:
    """Write all toys into `folder`, each with the command that creates such files."""
    folder.mkdir(parents=True)
    rows = [labelled(number, row) for number in range(len(SIGNS)) for row in range(N_EACH)]
    write_lines(folder / "data.jsonl", rows)
    write_lines(folder / "rows.jsonl", unlabelled())
    many = [{**row, "id": f"{row['id']}-{number}", "relation": None} for number in range(3) for row in rows]
    write_lines(folder / "many.jsonl", many)
    new = [labelled(number, row) for number in range(len(SIGNS)) for row in range(N_EACH, 2 * N_EACH)]
    write_lines(folder / "labelled.jsonl", new)
    (folder / "settings.toml").write_text(CONFIG)
    _write_vectors(folder / "vectors.txt")
    _write_formats(folder / "formats", rows)
    _write_sources(folder / "sources")
    _make(lambda: _write_model(folder / "tiny"), folder)
    undo = ["versions", "--undo", "--store", "store"]
    for call in (BUILD, TRAIN, INDEX, FROZEN, TEACH, REJECT, TUNE, MORE, undo, RUN):
        _make(call, folder)
    _compile(folder)


def _compile(folder: Path) -> None:
    """Let this process compile what its forks would compile each time: the BiLSTM, regular expressions, a page.

    Its files are not those of a case: `erda` keeps the last dataset of a process in memory.
    """
    import torch
    from transformers import AutoModel, AutoTokenizer
    from transformers.utils import logging

    here = folder / "compiled"
    here.mkdir()
    shutil.copy2(folder / "data.jsonl", here / "other.jsonl")
    shutil.copy2(folder / "vectors.txt", here)
    os.chdir(here)
    calls = ([one.replace("data.jsonl", "other.jsonl") for one in RUN], ["report", "run", "--no-figures"])
    with Path("said.txt").open("w") as said, redirect_stdout(said), redirect_stderr(said):
        if any(main(call) for call in calls):
            raise SystemExit(f"The trial could not run {calls} in its own process.")
    os.chdir(folder)
    shutil.rmtree(here)
    logging.disable_progress_bar()
    AutoTokenizer.from_pretrained(folder / "tiny")
    AutoModel.from_pretrained(folder / "tiny")(torch.zeros(1, 4, dtype=torch.long))
    logging.enable_progress_bar()
    _ = len(ENCODERS), len(METHODS)  # reads the entry points of all installed packages


def labelled(number: int, row: int) -> dict[str, Any]:
    """Example `row` of relation `number`."""
    rng = random.Random(f"{number} {row}")
    one, two = rng.sample(NAMES, 2)
    fill = rng.choices(WORDS, k=4)
    cut = rng.randrange(1, 4)
    tokens = [one, *fill[:cut], SIGNS[number], *fill[cut:], two]
    first, last = _entity(one, 0), _entity(two, len(tokens) - 1)
    head, tail = (first, last) if row % 2 else (last, first)
    return {"tokens": tokens, "head": head, "tail": tail, "relation": f"r{number}", "id": f"{number}-{row}"}


def unlabelled(n_pairs: int = 60) -> list[dict[str, Any]]:
    """Three sentences of each entity pair; some pairs are those of the examples."""
    rng = random.Random(0)
    known = [(one, two) for one in NAMES for two in NAMES if one != two][:20]
    found = []
    for number in range(n_pairs):
        head, tail = known[number] if number < len(known) else (f"h{number}", f"t{number % 10}")
        for _ in range(3):
            fill = rng.choices(WORDS, k=8)
            tokens = [*fill[:3], head, fill[3], SIGNS[number % 6], *fill[4:6], tail, *fill[6:]]
            row = {"tokens": tokens, "head": _entity(head, 3), "tail": _entity(tail, 8), "relation": None}
            found.append({**row, "source": f"page{number % 7}"})
    return found


def write_lines(path: Path, rows: list[dict[str, Any]]) -> Path:
    """A JSONL file."""
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def copy(toys: Path, names: tuple[str, ...], folder: Path) -> None:
    """Copy toys into the folder of a case, those of `stopped/` under their last name.

    Times of change stay, so that what was checked counts as checked.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for name in names:
        target = folder / (Path(name).name if name.startswith("stopped/") else name)
        if (toys / name).is_dir():
            shutil.copytree(toys / name, target, dirs_exist_ok=True)
        else:
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(toys / name, target)


def _make(call: Call, folder: Path) -> None:
    answer = ask(call, folder, patience=600)
    if answer.status:
        raise SystemExit(f"A toy could not be made by {call}:\n{answer.said}")


def _entity(name: str, place: int) -> dict[str, Any]:
    return {"name": name, "id": f"toy:{name}", "span": [place, place + 1]}


def _write_vectors(path: Path) -> None:
    rng = random.Random(7)
    rows = ((word, [rng.gauss(0, 1) for _ in range(8)]) for word in (*NAMES, *WORDS, *SIGNS))
    path.write_text("".join(f"{word} {' '.join(f'{x:.6f}' for x in row)}\n" for word, row in rows))


def _write_formats(folder: Path, rows: list[dict[str, Any]]) -> None:
    """The same examples in every supported format."""
    folder.mkdir()
    write_lines(folder / "own.jsonl", rows)
    (folder / "packed.jsonl.gz").write_bytes(gzip.compress((folder / "own.jsonl").read_bytes(), mtime=0))
    (folder / "relations.json").write_text(json.dumps([{"id": f"r{i}", "name": f"name {i}"} for i in range(6)]))
    marked = [{"text": "[[ada]] met {{bob}} .", "relation": "r0"}]
    write_lines(folder / "marked.jsonl", marked)
    _write_annotations(folder)
    tacred, cfrl = [], []
    fewrel: dict[str, list[Any]] = {}
    for row in rows:
        head, tail = row["head"]["span"][0], row["tail"]["span"][0]
        ends = {"subj_start": head, "subj_end": head, "obj_start": tail, "obj_end": tail}
        tacred.append({"id": row["id"], "token": row["tokens"], "relation": row["relation"], **ends})
        mentions = {"h": [row["head"]["name"], "Q1", [[head]]], "t": [row["tail"]["name"], "Q2", [[tail]]]}
        fewrel.setdefault(row["relation"], []).append({"tokens": row["tokens"], **mentions})
        names = [row["head"]["name"], str(head), row["tail"]["name"], str(tail)]
        number = int(row["relation"][1:]) + 1
        cfrl.append("\t".join([str(number), "1 2 3 4 5 6", " ".join(row["tokens"]), *names, "Q1", "Q2"]))
    (folder / "tacred.json").write_text(json.dumps(tacred))
    (folder / "fewrel.json").write_text(json.dumps(fewrel))
    (folder / "cfrl.txt").write_text("\n".join(cfrl))


def _write_annotations(folder: Path) -> None:
    """Files of annotation tools, and tables."""
    text, ends = "ada met bob .", ((0, 3), (8, 11))
    (folder / "table.csv").write_text("text,relation\n[[ada]] met {{bob}} .,r0\n")
    (folder / "sentences.txt").write_text("[[ada]] met {{bob}} .\n[[carl]] met {{dora}} .\n")
    spans = [{"start": start, "end": end, "text": text[start:end]} for start, end in ends]
    regions = [{"id": str(i), "type": "labels", "value": span} for i, span in enumerate(spans)]
    relation = {"type": "relation", "from_id": "0", "to_id": "1", "direction": "right", "labels": ["r0"]}
    task = {"id": 1, "data": {"text": text}, "annotations": [{"result": [*regions, relation]}]}
    (folder / "labelstudio.json").write_text(json.dumps([task, task]))
    link = {"head": 0, "child": 2, "label": "r0", "head_span": spans[0], "child_span": spans[1]}
    write_lines(folder / "prodigy.jsonl", [{"text": text, "relations": [link], "answer": "accept"}])
    (folder / "brat.txt").write_text(text)
    lines = [f"T{i}\tName {start} {end}\t{text[start:end]}" for i, (start, end) in enumerate(ends)]
    (folder / "brat.ann").write_text("\n".join([*lines, "R1\tr0 Arg1:T0 Arg2:T1", ""]))


def _write_sources(folder: Path) -> None:
    """Unlabelled text of every kind."""
    folder.mkdir()
    (folder / "text.txt").write_text("ada met bob in the city .\n\ncarl was the king of dora .\n")
    (folder / "names.txt").write_text("ada\nbob\tQ1\ncarl\ndora\n")
    text = "'''Ada''' was a [[king]] of [[Bob|the bob]].<ref>no</ref> {{box|a=b}}\n== More ==\n[[Carl]] met [[Dora]]."
    pages = "".join(
        f"<page><title>{name}</title><ns>0</ns><id>{i}</id><revision><text>{_xml(text)}</text></revision></page>"
        for i, name in enumerate(("Ada", "Bob", "Carl"))
    )
    (folder / "dump.xml").write_text(dump(pages))


def dump(pages: str) -> str:
    """A Wikipedia dump of some pages."""
    return f"<mediawiki><siteinfo><dbname>enwiki</dbname><case>first-letter</case></siteinfo>{pages}</mediawiki>"


def _xml(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;")


def _write_model(folder: Path) -> None:
    """A transformer with random weights and a tiny vocabulary."""
    import torch
    from transformers import BertConfig, BertModel, BertTokenizer

    letters = "abcdefghijklmnopqrstuvwxyz0123456789#@-.,"
    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *letters, *(f"##{letter}" for letter in letters)]
    vocabulary = {piece: row for row, piece in enumerate(dict.fromkeys([*pieces, *WORDS, *NAMES, *SIGNS]))}
    torch.manual_seed(0)
    sizes = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 32}
    config = BertConfig(vocab_size=len(vocabulary), **sizes, max_position_embeddings=64, initializer_range=0.3)
    BertModel(config).save_pretrained(folder)
    BertTokenizer(vocab=vocabulary, model_max_length=64).save_pretrained(folder)
