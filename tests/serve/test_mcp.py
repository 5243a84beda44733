"""The tools of `erda mcp`, called by the client of the package `mcp` over standard input and output."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import anyio

from erda.app.extractor import Extractor

FOUNDED = ["[[Tesla]] was started by {{Martin Eberhard}}.", "{{Bill Gates}} founded [[Microsoft]]."]
QUESTION = "[[SpaceX]] was set up by {{Elon Musk}}."


def test_a_client_teaches_asks_and_undoes(tmp_path: Path) -> None:
    from mcp import StdioServerParameters  # takes seconds
    from mcp.client.client import Client
    from mcp.client.stdio import stdio_client

    store = tmp_path / "store"

    async def talk() -> None:
        server = StdioServerParameters(
            command=sys.executable, args=["-m", "erda", "mcp", str(store)], env=dict(os.environ)
        )
        async with Client(stdio_client(server)) as client:

            async def call(tool: str, **arguments: Any) -> Any:
                answer: Any = await client.call_tool(tool, arguments)
                text = answer.content[0].text
                return text if answer.is_error else json.loads(text)

            listed = {one.name: one for one in (await client.list_tools()).tools}
            assert set(listed) == {"relations", "predict", "extract", "teach", "judge", "undo"}
            assert listed["predict"].input_schema["required"] == ["sentences"]
            assert (await call("predict", sentences=[QUESTION])).endswith("No relation is known: teach one first.")
            assert (await call("teach", relation="founded by", examples=FOUNDED))["version"] == 1
            (answer,) = (await call("predict", sentences=[QUESTION]))["answers"]
            assert (answer["relation"], answer["head"]) == ("founded by", "SpaceX")
            assert answer == Extractor.open(store).predict(QUESTION).to_json()
            found = await call("extract", text="SpaceX was founded by Elon Musk.", entities=["SpaceX", "Elon Musk"])
            assert [(one["head"], one["tail"]) for one in found["answers"]] == [("SpaceX", "Elon Musk")]
            judged = await call("judge", sentence="[[Apple]] hired {{Cook}}.", relation="founded by", holds=False)
            assert (judged["version"], judged["n_counterexamples"]) == (2, 1)
            Extractor.open(store).teach("born in", ["[[Ada]] was born in {{London}}."])
            assert [one["name"] for one in (await call("relations"))["relations"]] == ["founded by", "born in"]
            assert (await call("undo"))["version"] == 2
            fault = await call("judge", sentence="no marks", relation="founded by", holds=True)
            assert "no head is marked" in fault
            assert "Unknown relation" in await call("judge", sentence=QUESTION, relation="founded bye", holds=True)
            assert "sentences" in await call("predict", sentences=3)

    anyio.run(talk)


def test_standard_output_holds_the_protocol_alone_and_ctrl_c_ends_the_server(tmp_path: Path) -> None:
    hello = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}
    with subprocess.Popen(
        [sys.executable, "-m", "erda", "mcp", str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as server:
        assert server.stdin
        assert server.stdout
        print(
            json.dumps({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": hello}),
            file=server.stdin,
            flush=True,
        )
        assert json.loads(server.stdout.readline())["result"]["serverInfo"]["name"] == "erda"
        server.send_signal(signal.SIGINT)
        assert server.wait(30) == -signal.SIGINT
        assert server.stdout.read() == ""
