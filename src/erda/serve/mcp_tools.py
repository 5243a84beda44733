"""An extractor as tools of a language model: the Model Context Protocol over standard input and output (extra `mcp`).

Standard output belongs to the protocol: while the server runs, the package `mcp` sends what others print to stderr.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Annotated, Any

from mcp.server.mcpserver import MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp.types import ToolAnnotations
from pydantic import Field

from erda import __version__
from erda.answers import Pairs
from erda.app.extractor import Extractor
from erda.app.store import Store
from erda.app.version import TOP
from erda.errors import ErdaError, printable
from erda.serve import wire

INSTRUCTIONS = """\
A relation extractor that learns from a few sentences. In a marked sentence, [[ ]] holds the first entity of the
relation and {{ }} the second: "[[Tesla]] was started by {{Martin Eberhard}}." Every change is a version that undo takes
back.
"""
Marked = Annotated[
    str, Field(description="a sentence with both entities marked: [[Tesla]] was founded by {{Eberhard}}.")
]
Names = Annotated[list[str] | None, Field(description="entities of the text; default: a tagger finds them")]
Confidence = Annotated[float | None, Field(ge=0, le=1, description="replaces the threshold of the extractor")]
Reply = dict[str, Any]


def tools_of(extractor: Extractor) -> tuple[Callable[..., Reply], ...]:
    """The tools, with their descriptions for the model."""

    def relations() -> Reply:
        """List the known relations with their descriptions and numbers of examples."""
        return {"version": extractor.version.number, "relations": wire.relation_rows(extractor.version)}

    def predict(sentences: list[Marked], top: int = TOP, min_confidence: Confidence = None) -> Reply:
        """Predict the relation between the two marked entities of each sentence; null if no known relation holds."""
        found = extractor.predict(sentences, top=top, min_confidence=min_confidence)
        return {"answers": [one.to_json() for one in found]}

    def extract(
        text: str, entities: Names = None, pairs: Pairs = "likelier", min_confidence: Confidence = None
    ) -> Reply:
        """Extract the relations between all entities of a plain text that share a sentence."""
        found = extractor.extract(text, entities, min_confidence=min_confidence)
        about = {name: getattr(found, name) for name in ("tagger", "n_left_out", "hint")}
        return {"answers": [one.to_json() for one in found.kept(pairs)], **about}

    def teach(
        relation: str, examples: list[Marked], counterexamples: tuple[Marked, ...] = (), description: str = ""
    ) -> Reply:
        """Teach a relation, new or known, by sentences in which it holds; it does not hold in counterexamples."""
        more: Reply = {"counterexamples": counterexamples, "description": description}
        return wire.taught_row(extractor.teach(relation, examples, **more))

    def judge(sentence: Marked, relation: str, holds: bool) -> Reply:
        """Say whether a known relation holds in a sentence: it becomes an example or a counterexample."""
        return wire.taught_row(extractor.judge(sentence, relation, holds=holds))

    def undo() -> Reply:
        """Return to the version before the current one."""
        return {"version": extractor.undo()}

    return relations, predict, extract, teach, judge, undo


def on_newest(extractor: Extractor, function: Callable[..., Reply]) -> Callable[..., Reply]:
    """Let a tool see what other processes have taught; a fault of the library is a tool error."""

    @wraps(function)
    def tool(**arguments: Any) -> Reply:
        try:
            if Store(extractor.folder).exists():
                extractor.refresh()
            return function(**arguments)
        except (ErdaError, OSError) as fault:
            raise ToolError(printable(str(fault))) from None

    return tool


def serve_tools(store: Path) -> None:
    """Serve the tools until standard input ends."""
    extractor = Extractor.open(store)
    server = MCPServer("erda", version=__version__, instructions=INSTRUCTIONS, log_level="WARNING")
    for one in tools_of(extractor):
        reads = one.__name__ in ("relations", "predict", "extract")
        server.add_tool(on_newest(extractor, one), annotations=ToolAnnotations(read_only_hint=reads))
    server.run("stdio")
