"""Relations as a graph: written, and read back by NetworkX, by rdflib and by a reader of Cypher's strings."""

import io
import re
from pathlib import Path
from typing import Any

import networkx as nx
import pytest
import rdflib
from hypothesis import example, given
from hypothesis import strategies as st
from toy_extractor import BORN, FOUNDED, open_toy

from erda import graph as graphs
from erda.errors import ErdaError
from erda.graph import build_graph, to_cypher, to_graphml, to_turtle

ENTITY = rdflib.Namespace("urn:erda:entity:")
HOSTILE = [
    ("'); MATCH (n) DETACH DELETE n //", "C:\\users\\u0027", '"""'),
    ("<a>&amp;]]>", "a\x00\x1b\r\nb\ud800", "` \\"),
    ("x" * 9_000, "", "\u2028"),
]


def row(head: str = "Tesla", tail: str = "Eberhard", **more: Any) -> dict[str, Any]:
    text = f"[[{head}]] was started by {{{{{tail}}}}}."
    return {"text": text, "head": head, "tail": tail, "relation": "founded by", "confidence": 0.5, **more}


def strings(line: str) -> list[str]:
    """The strings of a Cypher statement; adjacent ones joined by + are one."""
    whole = re.sub(r"(?<!\\)((?:\\\\)*)' \+ 'u", r"\1u", line)
    return [re.sub(r"\\(.)", r"\1", one) for one in re.findall(r"'((?:[^'\\]|\\.)*)'", whole)]


@given(st.lists(st.tuples(st.text(), st.text(), st.text()), min_size=1, max_size=4))
@example(HOSTILE)
def test_any_name_can_be_written_and_read_back(triples: list[tuple[str, str, str]]) -> None:
    found = build_graph(row(head, tail, relation=relation) for head, tail, relation in triples)
    read = nx.read_graphml(io.BytesIO(to_graphml(found)), force_multigraph=True)
    assert set(read) == set(found)
    assert set(read.edges(data="relation")) == set(found.edges(data="relation"))
    for most in (0, 10_000):
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(graphs, "MOST_READABLE", most)
            rdf = rdflib.Graph().parse(data=to_turtle(found), format="turtle")
        labels = {str(label) for own, label in rdf.subject_objects(rdflib.RDFS.label) if own in ENTITY}
        assert labels == set(found)
        assert len(set(rdf.subjects(rdflib.RDF.type, rdflib.RDF.Statement))) == found.number_of_edges()
    first, *lines = to_cypher(found).decode().splitlines()
    assert first.startswith("CREATE CONSTRAINT")
    assert [strings(line)[0] for line in lines[: len(found)]] == list(found)
    assert all(line.endswith(";") and not re.search(r"\\u|[\x00-\x1f]", line) for line in lines)
    assert all(re.search(r"\[r:`\w+` \{", line) for line in lines[len(found) :])
    assert len(lines) == len(found) + found.number_of_edges()


def test_one_node_for_one_name() -> None:
    found = build_graph(
        [
            row(id="a", head_start=0, head_end=5, tail_start=21, tail_end=29, head_type="ORG"),
            row("TESLA ", id="a", confidence=0.7),
            row("Tesla Inc.", id="b", line=3, head_type="PRODUCT"),
            row("It", "Eberhard", head_resolved="tesla"),
            row("It", line=4),
            row("Q", "Big Blue", head_id="Q478", line=5),
            row(relation=None),
            {"line": 9, "error": "too long"},
        ],
        {"tesla inc.": "Tesla", "Big Blue": "IBM", "unused": None},
    )
    assert list(found) == ["Tesla", "Eberhard", "Q478", "IBM"]
    tesla = {"name": "Tesla", "spellings": ["Tesla", "TESLA", "Tesla Inc.", "tesla"], "types": ["ORG", "PRODUCT"]}
    assert found.nodes["Tesla"] == {**tesla, "places": ["a#char=0,5"]}
    assert (found.nodes["Q478"]["name"], found.nodes["IBM"]["spellings"]) == ("Q", ["Big Blue"])
    said = sorted((about["document"], about["confidence"]) for *_, about in found.edges("Tesla", data=True))
    assert said == [("", 0.5), ("a", 0.5), ("a", 0.7), ("b", 0.5)]
    assert [about["document"] for *_, about in found.edges("Q478", data=True)] == ["line 5"]
    twice = build_graph([row(), row(confidence=0.9), row(confidence=0.1)])
    assert [one for *_, one in twice.edges(data="confidence")] == [0.9]


def test_an_extraction_becomes_a_graph(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    extractor = open_toy(tmp_path / "store")
    extractor.teach_many({"founded by": FOUNDED, "born in": BORN})
    found = extractor.extract("SpaceX was founded by Elon .", ["SpaceX", "Elon"], min_confidence=0)
    graph = found.to_networkx(aliases={"Elon": "Elon Musk"}, document="news")
    ((head, tail, document),) = set(graph.edges(data="document"))  # of two relations
    assert ({head, tail}, document) == ({"SpaceX", "Elon Musk"}, "news")
    assert graph.nodes["SpaceX"]["places"] == ["news#char=0,6"]
    monkeypatch.setattr("erda.errors.find_spec", lambda name: None)
    with pytest.raises(ErdaError, match=r"pip install 'erda\[graph\]'"):
        found.to_networkx()
