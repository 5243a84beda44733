"""Start a server, then teach it and ask it over HTTP.

    python examples/http_client.py      # needs the extra `serve`

In production `erda serve` runs elsewhere, and a program needs only the lines with `client`.
"""

import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from erda import Client, read_examples

with TemporaryDirectory() as folder:
    command = [sys.executable, "-m", "erda", "serve", folder + "/extractor", "--port", "0", "--no-browser"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        address = server.stdout.readline().strip()  # printed when the server is ready to listen
        try:
            client = Client(address)
            print(client.teach_many(read_examples(Path(__file__).with_name("founders.csv")).examples))
            answer = client.predict("[[SpaceX]] was founded in 2002 by {{Elon Musk}}.")
            print(answer.example.head.name, "|", answer.relation, "|", answer.example.tail.name)
            client.undo()
            print([relation.name for relation in client.relations])
        finally:
            server.terminate()
