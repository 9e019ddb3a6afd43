"""A stub of AWS for a handler that is measured in a process of its own: a local server that boto3 calls there."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    Json = Mapping[str, Any]


@contextlib.contextmanager
def stub_aws(answer: Callable[[Json], Json]) -> Iterator[str]:
    """The URL of a server with these answers to the bodies of calls; that of a GET is empty."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            self._answer({})

        def do_POST(self) -> None:
            self._answer(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))

        def _answer(self, body: Json) -> None:
            text = json.dumps(answer(body)).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 (the base class's name)
            """Nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()


def run_program(program: str, url: str, environ: Mapping[str, str], *, stdin: str = "") -> dict[str, float]:
    """The last line, in JSON, of a Python program in a process of its own, to which ``url`` is all of AWS."""
    environ = {
        **os.environ,
        **environ,
        "TENON_CLUSTER_NAME": "demo",
        "AWS_ENDPOINT_URL": url,
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_ACCESS_KEY_ID": "x",
        "AWS_SECRET_ACCESS_KEY": "x",
    }
    process = subprocess.run(
        [sys.executable, "-c", program], input=stdin, capture_output=True, text=True, env=environ, check=True
    )
    printed: dict[str, float] = json.loads(process.stdout.splitlines()[-1])
    return printed
