"""A toy copy of FewRel's data folder: 80 relations, three training and two test lines each."""

import json
from pathlib import Path

import numpy as np

N_RELATIONS = 80


def write_split(folder: Path, *, shots: int = 5) -> None:
    """Write the published files of one split."""
    cfrl = folder / "cfrl"
    split = cfrl / f"{shots}-shot"
    split.mkdir(parents=True)
    rows = [(relation, number) for number in range(5) for relation in range(1, N_RELATIONS + 1)]
    train = [_line(relation, f"train{relation}x{number}", listed=0) for relation, number in rows if number < 3]
    test = [_line(relation, f"test{relation}x{number}", listed=relation) for relation, number in rows if number >= 3]
    (split / "train_0.txt").write_text("\n".join(train), encoding="utf-8")
    (split / "test_0.txt").write_text("\n".join(test), encoding="utf-8")
    np.save(split / "rel_cluster_label_0.npy", np.arange(N_RELATIONS) % 8)
    np.save(cfrl / "rel_index.npy", np.arange(N_RELATIONS, 0, -1))
    names = "".join(f"name {index}\n" for index in range(1, N_RELATIONS + 1))
    (cfrl / "relation_name.txt").write_text(names, encoding="utf-8")


def write_derived(folder: Path) -> None:
    """Write the derived files: the relation list and the validation examples."""
    relations = [{"index": i, "pid": f"P{i}", "name": f"name {i}"} for i in range(1, N_RELATIONS + 1)]
    (folder / "relations.json").write_text(json.dumps(relations), encoding="utf-8")
    rows = [_row(f"valid{i}") | {"relation": f"P{i}"} for i in range(1, N_RELATIONS + 1)]
    (folder / "validation.jsonl.gz").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


def wiki_files(n_each: int = 55) -> dict[str, bytes]:
    """Return FewRel's public files; the first sentence of each relation is also in the split."""
    pids = {f"P{i}": [f"name {i}", f"description {i}"] for i in range(1, N_RELATIONS + 1)}
    sentences = {
        f"P{i}": [
            {"tokens": ["Ann", word, "Bob"], "h": ["Ann", "Q1", [[0]]], "t": ["Bob", "Q2", [[2]]]}
            for word in [f"Train{i}x0", *(f"Wiki{i}x{n}" for n in range(n_each - 1))]
        ]
        for i in range(1, N_RELATIONS + 1)
    }
    halves = [{p: r for p, r in sentences.items() if (int(p[1:]) <= 64) is first} for first in (True, False)]
    return {
        "train_wiki.json": json.dumps(halves[0]).encode(),
        "val_wiki.json": json.dumps(halves[1]).encode(),
        "pid2name.json": json.dumps(pids | {"P999": ["unused", "not in the splits"]}).encode(),
    }


def _line(relation: int, word: str, *, listed: int) -> str:
    candidates = [index for index in range(1, N_RELATIONS + 1) if index != relation][:10]
    candidates += [listed] if listed else []
    return "\t".join(
        [str(relation), " ".join(map(str, candidates)), f"ann {word} bob", "ann", "0", "bob", "2", "Q1", "Q2"]
    )


def _row(word: str) -> dict[str, object]:
    return {"tokens": ["ann", word, "bob"], "head": {"span": [0, 1]}, "tail": {"span": [2, 3]}}
