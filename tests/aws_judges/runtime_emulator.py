"""A function's bundle in Lambda's runtime interface emulator, as in the sandbox that Lambda gives it.

The bundle, Lambda's own packages and its Python are read-only; /tmp is the only folder that can be written. The
environment has the template's variables and those that Lambda sets, and AWS_ENDPOINT_URL, which names the local AWS.
"""

from __future__ import annotations

import contextlib
import json
import socket
import subprocess
import tempfile
import time
from http.client import HTTPConnection
from pathlib import Path
from typing import TYPE_CHECKING, Any

from shared.base.struct import Struct
from tests.aws_judges import engines

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

_PATH = "/2015-03-31/functions/function/invocations"
_SECONDS_TO_START = 30
_POLL_SECONDS = 0.05
_KIB = 1024
_PYTHON = "/var/lang/bin/python3.13"
_IMPORT = """
import importlib, json, resource, sys, time
began = time.perf_counter()
importlib.import_module(sys.argv[1])
seconds = time.perf_counter() - began
print(json.dumps({"seconds": seconds, "kib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss}))
"""
_OF_LAMBDA = {
    "LANG": "en_US.UTF-8",
    "LAMBDA_TASK_ROOT": "/var/task",
    "LD_LIBRARY_PATH": "/var/lang/lib",
    "PATH": "/var/lang/bin:/usr/bin:/bin",
    "PYTHONPATH": "/var/task:/var/runtime/client:/var/runtime/sdk",
    "TZ": ":UTC",
}
"""The variables that Lambda sets in every function (Lambda Developer Guide, "environment variables")."""


class Runtime(Struct, kw_only=True):
    """What bundles run in. ``sdk`` has the packages of Lambda's runtime, ``python`` is the folder of its Python."""

    client: Path
    sdk: Path
    python: Path
    emulator: Path
    sandbox: Path


class Function(Struct, kw_only=True):
    """A function as its template has it, with its bundle, and the endpoint of the local AWS."""

    name: str
    handler: str
    bundle: Path
    variables: Mapping[str, str]
    memory_mib: int
    timeout: int
    access_key: str
    endpoint: str


class Imported(Struct, kw_only=True):
    """How long the handler's module took to be imported, in seconds, and the memory after it, in MiB."""

    seconds: float
    mib: float


class Answer(Struct, kw_only=True):
    """What a function answered, the seconds until then with its init, the peak of its memory in MiB, and its logs."""

    payload: Any
    seconds: float
    mib: float
    logs: str

    @property
    def error(self) -> str:
        """The error that Lambda would report; empty if there is none."""
        if isinstance(self.payload, dict) and "errorMessage" in self.payload:
            return f"{self.payload.get('errorType')}: {self.payload['errorMessage']}"
        return ""


def imported(runtime: Runtime, function: Function) -> Imported:
    """Import the handler in the sandbox.

    Raises:
        RuntimeError: it can't be imported; the text is the traceback.
    """
    module = function.handler.rpartition(".")[0]
    with _rooted(runtime, function, [_PYTHON, "-c", _IMPORT, module]) as command:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=_SECONDS_TO_START)
    if done.returncode:
        raise RuntimeError(done.stderr)
    measured = json.loads(done.stdout)
    return Imported(seconds=measured["seconds"], mib=measured["kib"] / _KIB)


def invoke(runtime: Runtime, function: Function, event: Any) -> Answer:
    """Invoke the function once, with a cold start."""
    port, api_port = _free_port(), _free_port()
    emulator = [
        "/emulator",
        *("--log-level", "error"),
        *("--runtime-interface-emulator-address", f"127.0.0.1:{port}"),
        *("--runtime-api-address", f"127.0.0.1:{api_port}"),
        *(_PYTHON, "-m", "awslambdaric", function.handler),
    ]
    with _rooted(runtime, function, emulator) as command, tempfile.TemporaryFile("w+") as output:
        process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT)
        try:
            _wait_for(port, process)
            began = time.perf_counter()
            payload = _post(port, event, timeout=function.timeout + 10)
            seconds = time.perf_counter() - began
            mib = _peak_mib(process.pid)
        finally:
            process.kill()
            process.wait()
        output.seek(0)
        return Answer(payload=payload, seconds=seconds, mib=mib, logs=output.read())


@contextlib.contextmanager
def _rooted(runtime: Runtime, function: Function, command: Sequence[str]) -> Iterator[list[str]]:
    """The command in the sandbox, with the function's environment."""
    environment = {
        **_OF_LAMBDA,
        **function.variables,
        "AWS_ACCESS_KEY_ID": function.access_key,
        "AWS_SECRET_ACCESS_KEY": "local",
        "AWS_SESSION_TOKEN": "local",
        "AWS_REGION": "us-east-1",
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_ENDPOINT_URL": function.endpoint,
        "AWS_EXECUTION_ENV": "AWS_Lambda_python3.13",
        "AWS_LAMBDA_FUNCTION_MEMORY_SIZE": str(function.memory_mib),
        "AWS_LAMBDA_FUNCTION_NAME": function.name,
        "AWS_LAMBDA_FUNCTION_TIMEOUT": str(function.timeout),
        "AWS_LAMBDA_INITIALIZATION_TYPE": "on-demand",
        "_HANDLER": function.handler,
    }
    variables = [f"{name}={value}" for name, value in environment.items()]
    with tempfile.TemporaryDirectory(prefix="lambda-") as root:
        folders = (root, function.bundle, runtime.client, runtime.sdk, runtime.python, runtime.emulator)
        yield [*engines.NAMESPACES, "sh", str(runtime.sandbox), *map(str, folders), *variables, *command]


def _free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
    return port


def _wait_for(port: int, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + _SECONDS_TO_START
    while time.monotonic() < deadline and process.poll() is None:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
            return
        time.sleep(_POLL_SECONDS)
    raise RuntimeError(f"the emulator doesn't listen; its exit code is {process.poll()}")


def _post(port: int, event: Any, *, timeout: float) -> Any:
    connection = HTTPConnection("127.0.0.1", port, timeout=timeout)
    with contextlib.closing(connection):
        connection.request("POST", _PATH, body=json.dumps(event))
        text = connection.getresponse().read().decode()
    try:
        return json.loads(text)
    except ValueError:
        return {"errorType": "Emulator", "errorMessage": text}


def _peak_mib(ancestor: int) -> float:
    """The peak of the resident memory of the largest process below that one."""
    parents: dict[int, int] = {}
    for status in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            parents[int(status.parent.name)] = int(status.read_text().rpartition(")")[2].split()[1])
    peaks = [0.0]
    for process in parents:
        above = process
        while above in parents and above != ancestor:
            above = parents[above]
        if above == ancestor:
            with contextlib.suppress(OSError):
                lines = Path(f"/proc/{process}/status").read_text().splitlines()
                peaks += [float(line.split()[1]) / _KIB for line in lines if line.startswith("VmHWM")]
    return max(peaks)
