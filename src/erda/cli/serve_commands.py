"""`erda serve | mcp`: answer and teach over HTTP, or as tools of a language model."""

from __future__ import annotations

import argparse
import signal
import sys
from pathlib import Path

from erda.cli.checking import Commands, add_command, named_path
from erda.cli.printing import print_line
from erda.cli.store_options import default_store
from erda.errors import require


def add_parser(commands: Commands[argparse.ArgumentParser]) -> None:
    """Add the commands to the parser."""
    serve = add_command(commands, "serve", run_serve)
    serve.add_argument("--host", default="127.0.0.1", metavar="ADDRESS", help="address (default: 127.0.0.1)")
    serve.add_argument("--port", type=int, default=8111, metavar="N", help="port (default: 8111; 0: any free port)")
    token = "file with the token that clients must send; created with a random token if missing"
    serve.add_argument("--token-file", type=Path, metavar="FILE", help=token)
    names = "another name of this server, for example behind a proxy (may be repeated)"
    serve.add_argument("--allow-host", action="append", default=[], metavar="NAME", help=names)
    engine = "local: one process; ray: replicas and one writer on a Ray cluster whose nodes all see STORE"
    serve.add_argument("--engine", choices=("local", "ray"), default="local", help=f"{engine} (default: local)")
    cluster = "Ray cluster: 'auto' or HOST:PORT (default: a cluster of this process)"
    serve.add_argument("--address", metavar="ADDRESS", help=cluster)
    serve.add_argument("--no-browser", action="store_true", help="do not open the page")

    mcp = add_command(commands, "mcp", run_mcp)
    store = "folder of the extractor; the first teaching creates it (default: $ERDA_STORE, else my-extractor)"
    for one in (serve, mcp):
        one.add_argument("store", type=named_path, metavar="STORE", nargs="?", default=default_store(), help=store)


def run_serve(options: argparse.Namespace) -> None:
    """Serve until interrupted."""
    require("fastapi", "uvicorn", "prometheus_client")
    from erda.serve.application import read_token, serve
    from erda.serve.service import ServerSettings

    token = read_token(options.token_file) if options.token_file else None
    settings = ServerSettings(options.store, options.host, options.port, token, tuple(options.allow_host))

    def started(address: str) -> None:
        print_line(address)
        print_line("The page and the calls are at this address; Ctrl-C stops the server.", flush=True)
        if not options.no_browser and sys.stdout.isatty():
            import webbrowser

            webbrowser.open(address)

    if options.engine == "ray":
        from erda.serve.ray_engine import serve_on_ray

        serve_on_ray(settings, address=options.address, started=started)
    else:
        serve(settings, started=started)


def run_mcp(options: argparse.Namespace) -> None:
    """Serve until standard input ends."""
    require("mcp")
    from erda.serve.mcp_tools import serve_tools

    signal.signal(signal.SIGINT, signal.SIG_DFL)  # else Python waits for the thread that reads standard input
    serve_tools(options.store)
