"""Extracted relations as a graph: GraphML by NetworkX, Turtle by rdflib, Cypher for Neo4j (extra `graph`).

A node is an entity: names that differ in case and spacing, names with one id, and aliases share a node. An edge is a
relation that one sentence states; its key depends on its content alone, so that a file can be loaded twice. Relations
of an unresolved pronoun are left out. Names from untrusted text break no file: white space becomes one space, other
characters that XML cannot hold become U+FFFD, and a very long name is cut.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from io import BytesIO
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from erda.text.keys import plain
from erda.text.pronouns import is_pronoun

if TYPE_CHECKING:
    import networkx as nx
    from rdflib.term import Node

Row = Mapping[str, Any]  # of `Answer.to_json`, with the `id` or `line` of its document
Aliases = Mapping[str, str | None]  # spelling -> the name or id of its node
NAMESPACE = "urn:erda:"
LONGEST_NAME = 1_000  # characters; an index of Neo4j holds at most 8 kB
MOST_READABLE = 10_000  # triples of RDF that are grouped and abbreviated for people
_NOT_XML = re.compile("[^ -\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def build_graph(rows: Iterable[Row], aliases: Aliases | None = None) -> nx.MultiDiGraph:
    """Build the graph of answers with one relation each.

    Nodes have `name`, and as lists `spellings`, `types` and `places` (DOCUMENT#char=START,END); edges have `relation`,
    `confidence`, `sentence` and `document`.
    """
    import networkx as nx

    known = {plain(name): _name(one) for name, one in (aliases or {}).items() if one}
    graph, nodes = nx.MultiDiGraph(), dict[str, str]()  # key of an entity -> its node
    for row in rows:
        names = [row.get(f"{role}_resolved") or row.get(role, "") for role in ("head", "tail")]
        if row.get("relation") is None or any(map(is_pronoun, names)):
            continue
        document = _clean(str(row.get("id") or (f"line {row['line']}" if "line" in row else "")))
        said = {"relation": _name(row["relation"]), "sentence": _clean(row.get("sentence") or row["text"])}
        said, ends = {**said, "document": document}, list[str]()
        for role, given in zip(("head", "tail"), names, strict=True):
            name, alias = _name(given), known.get(plain(given))
            node = alias or _name(row.get(f"{role}_id") or given)
            ends.append(node := nodes.setdefault(plain(node), node))
            if node not in graph:
                graph.add_node(node, name=alias or name, spellings={}, types={}, places={})
            start, end = (row.get(f"{role}_{one}") for one in ("start", "end"))
            found = {"spellings": name, "types": _clean(row.get(f"{role}_type") or "")}
            found["places"] = "" if start is None else f"{document}#char={start},{end}"
            for field, one in found.items():
                graph.nodes[node][field] |= {one: None} if one else {}
        key = hashlib.sha256(json.dumps([*ends, *said.values()]).encode()).hexdigest()[:16]
        before = graph.get_edge_data(*ends, key) or {"confidence": 0.0}
        graph.add_edge(*ends, key, **said, confidence=max(before["confidence"], row["confidence"]))
    for entity in graph.nodes.values():
        entity |= {field: list(entity[field]) for field in ("spellings", "types", "places")}
    return graph


def _clean(text: str) -> str:
    return _NOT_XML.sub("\ufffd", " ".join(text.split()))


def _name(text: str) -> str:
    name = _clean(text) or "\ufffd"
    digest = hashlib.sha256(name[LONGEST_NAME:].encode()).hexdigest()[:16]
    return name if len(name) <= LONGEST_NAME else f"{name[:LONGEST_NAME]}... {digest}"


def to_graphml(graph: nx.MultiDiGraph) -> bytes:
    """Write GraphML, which has no lists: they are JSON."""
    import networkx as nx

    flat, file = nx.MultiDiGraph(graph), BytesIO()
    for entity in flat.nodes.values():
        entity |= {name: json.dumps(one, ensure_ascii=False) for name, one in entity.items() if isinstance(one, list)}
    nx.write_graphml_xml(flat, file)
    return file.getvalue()


def to_turtle(graph: nx.MultiDiGraph) -> bytes:
    """Write Turtle: each relation as a triple, and as an `rdf:Statement` with its sentence and confidence."""
    from rdflib import SKOS, Graph

    triples = list(_triples(graph))
    if len(triples) > MOST_READABLE:  # lines of N-Triples are Turtle without prefixes, and ten times as fast
        return "".join(dict.fromkeys(f"{' '.join(one.n3() for one in triple)} .\n" for triple in triples)).encode()
    found = Graph(store="SimpleMemory")
    for prefix, names in (("erda", NAMESPACE), ("relation", f"{NAMESPACE}relation:"), ("skos", SKOS)):
        found.bind(prefix, names)
    found.addN((*triple, found) for triple in triples)
    return found.serialize(format="turtle", encoding="utf-8")


def _triples(graph: nx.MultiDiGraph) -> Iterator[tuple[Node, Node, Node]]:
    from rdflib import RDF, RDFS, SKOS, Literal, URIRef

    @cache
    def iri(kind: str, name: str = "") -> URIRef:
        return URIRef(f"{NAMESPACE}{kind}{quote(name, safe='')}")

    for node, entity in graph.nodes.items():
        own = [(RDFS.label, Literal(entity["name"])), *((RDF.type, iri("type:", one)) for one in entity["types"])]
        own += [(SKOS.altLabel, Literal(one)) for one in entity["spellings"] if one != entity["name"]]
        own += [(iri("place"), Literal(one)) for one in entity["places"]]
        yield from ((iri("entity:", node), *one) for one in own)
    for head, tail, key, about in graph.edges(keys=True, data=True):
        triple = iri("entity:", head), iri("relation:", about["relation"]), iri("entity:", tail)
        own = [(RDF.type, RDF.Statement), *zip((RDF.subject, RDF.predicate, RDF.object), triple, strict=True)]
        own += [(iri(name), Literal(about[name])) for name in ("confidence", "sentence", "document")]
        yield from (triple, (triple[1], RDFS.label, Literal(about["relation"])))
        yield from ((iri("statement:", key), *one) for one in own)


def to_cypher(graph: nx.MultiDiGraph) -> bytes:
    """Write one statement a line for cypher-shell: MERGE creates what is missing and updates the rest."""
    lines = ["CREATE CONSTRAINT erda_entity IF NOT EXISTS FOR (n:Entity) REQUIRE n.id IS UNIQUE"]
    for node, entity in graph.nodes.items():
        lines.append(f"MERGE (n:Entity {{id: {_literal(node)}}}) SET n += {_literal(entity)}")
    for head, tail, key, about in graph.edges(keys=True, data=True):
        kind = re.sub(r"\W+", "_", about["relation"]).upper()  # no backtick, no backslash
        ends = f"MATCH (a:Entity {{id: {_literal(head)}}}), (b:Entity {{id: {_literal(tail)}}})"
        lines.append(f"{ends} MERGE (a)-[r:`{kind}` {{id: '{key}'}}]->(b) SET r += {_literal(about)}")
    return "".join(f"{line};\n" for line in lines).encode()


def _literal(value: Any) -> str:
    """Quote a value. Neo4j replaces \\uXXXX before it reads quotes, so no backslash stands before a u.

    >>> print(_literal({"names": ["it's", "C:\\\\users\\\\bin"], "confidence": 0.5}))
    {names: ['it\\'s', 'C:\\\\' + 'users\\\\bin'], confidence: 0.5}
    """
    if isinstance(value, dict):
        return f"{{{', '.join(f'{name}: {_literal(one)}' for name, one in value.items())}}}"
    if isinstance(value, list):
        return f"[{', '.join(map(_literal, value))}]"
    quoted = str(value).replace("\\", "\\\\").replace("'", "\\'").replace("\\u", "\\' + 'u")
    return f"'{quoted}'" if isinstance(value, str) else repr(value)


FORMATS = {"graphml": to_graphml, "ttl": to_turtle, "cypher": to_cypher}


def graph_file(rows: Iterable[Row], format: str, aliases: Aliases | None = None) -> bytes:
    """The content of a file in one of the `FORMATS`; `jsonl` has the rows themselves."""
    if format == "jsonl":
        return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows).encode()
    return FORMATS[format](build_graph(rows, aliases))
