"""A control plane of its own on this machine: etcd, kube-apiserver, kube-scheduler and kube-controller-manager.

Each component is a process with the flags of a managed cluster as far as they matter here: Node and RBAC
authorization, NodeRestriction, a TokenReview webhook. Everything is in a temporary folder and ends with the context.
"""

from __future__ import annotations

import contextlib
import secrets
import signal
import socket
import subprocess
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Self

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from local.kubernetes.apiserver.auth import kubeconfig
from local.kubernetes.apiserver.certificates import make_identity
from local.real import binary, recording
from local.real.scheduler_queues import pending_pods
from shared.api.yaml_documents import reader, writer
from shared.cluster.connect import to_server
from shared.cluster.errors import ApiError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from types import TracebackType

    from local.real.recording import Recording
    from local.real.request_log import SentBody
    from shared.cluster.client import Client

SERVICE_CIDR = "10.100.0.0/16"
REQUESTS_PER_SECOND = 200
"""Of each client of the scheduler and the controllers. With upstream's defaults, 20 and 50, creating 1,000 pods takes
most of a minute."""
COMPONENTS = ("kube-scheduler", "kube-controller-manager")
_SECONDS_TO_START = 90
_SECONDS_TO_STOP = 10
_POLL_SECONDS = 0.1
_GROUPS = {
    "kubernetes-admin": "system:masters",
    "system:kube-scheduler": "",
    "system:kube-controller-manager": "",
}


class ControlPlaneError(RuntimeError):
    """A component ended or didn't become ready; the message has the end of its log."""


class ControlPlane:
    """A context manager with a running control plane of a minor of Kubernetes and no nodes.

    ``webhook`` is the URL of a TokenReview webhook and the PEM text of its authority; without one, only the control
    plane's own tokens and service accounts are authenticated. ``requests_per_second`` limits each client of the
    scheduler and the controllers. ``components`` are those that run next to the API server. If it is ``recorded``,
    :meth:`recording` can be called. With ``feature_gates``, which are on in all components, the API server serves beta
    kinds too. ``folder`` has a log of each component.
    """

    def __init__(
        self,
        *,
        kubernetes: str = binary.EMBEDDED,
        webhook: tuple[str, str] | None = None,
        requests_per_second: int = REQUESTS_PER_SECOND,
        scheduler_flags: Sequence[str] = (),
        components: Sequence[str] = COMPONENTS,
        recorded: bool = False,
        feature_gates: Sequence[str] = (),
    ) -> None:
        gates = ",".join(f"{gate}=true" for gate in feature_gates)
        self._feature_gates = [f"--feature-gates={gates}"] if gates else []
        self._kubernetes = kubernetes
        self._webhook = webhook
        self._components = frozenset(components)
        self._recorded = recorded
        self._requests_per_second = requests_per_second
        self._scheduler_flags = tuple(scheduler_flags)
        self._stack = contextlib.ExitStack()
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._tokens = {user: secrets.token_hex(16) for user in _GROUPS}
        self._identity = make_identity()
        self.folder: Path
        self.url = ""
        self._scheduler_url = ""
        self.certificate_authority = self._identity.authority
        """A PEM text."""

    @property
    def admin_token(self) -> str:
        """A bearer token of a member of system:masters."""
        return self._tokens["kubernetes-admin"]

    def client(self, token: Callable[[], str] | None = None) -> Client:
        """A client with that token, by default the administrator's. The caller closes it."""
        return to_server(self.url, self.certificate_authority, token or (lambda: self.admin_token))

    def kubeconfig(self) -> str:
        """The text of the administrator's kubeconfig."""
        return kubeconfig(self.url, self.certificate_authority, self.admin_token)

    def __enter__(self) -> Self:
        program = binary.built(self._kubernetes)
        with contextlib.ExitStack() as stack:
            # A Unix socket's path is at most 108 characters, which a test's own folder may exceed.
            self.folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="control-plane-")))
            stack.callback(self._stop)
            port = _free_port()
            self.url = f"https://127.0.0.1:{port}"
            self._write_files()
            self._start(program, "etcd", ["--directory", str(self.folder)])
            self._wait("etcd", (self.folder / "client.sock").exists)
            self._start(program, "kube-apiserver", self._api_server_flags(port))
            client = self.client()
            stack.callback(client.close)
            self._wait("kube-apiserver", lambda: _answers(client, "/readyz"))
            if "kube-scheduler" in self._components:
                self._start(program, "kube-scheduler", self._kube_scheduler_flags())
            if "kube-controller-manager" in self._components:
                self._start(program, "kube-controller-manager", self._controller_manager_flags())
                # Pods are refused until their namespace has its service account.
                account = "/api/v1/namespaces/default/serviceaccounts/default"
                self._wait("kube-controller-manager", lambda: _answers(client, account))
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    @contextlib.contextmanager
    def suspended(self, component: str = "kube-apiserver") -> Iterator[None]:
        """While entered, the component is stopped and answers nothing; afterwards it continues where it was."""
        process = self._processes[component]
        process.send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            process.send_signal(signal.SIGCONT)

    def log(self, component: str) -> str:
        """What the component has logged so far."""
        return (self.folder / f"{component}.log").read_text(errors="replace")

    def pending_pods(self) -> dict[str, int]:
        """The number of pods in each queue of the scheduler."""
        return pending_pods(self._scheduler_url, self.certificate_authority)

    def recording(self, sent: Mapping[str, SentBody]) -> Recording:
        """Every request and every state so far; ``sent`` has the bodies of this process's requests by audit ID."""
        return recording.read(self.folder, sent)

    def _write_files(self) -> None:
        private_key, public_key = _new_keys()
        files = {
            "server.crt": self._identity.certificate,
            "server.key": self._identity.key,
            "authority.crt": self._identity.authority,
            "service-accounts.key": private_key,
            "service-accounts.pub": public_key,
            "tokens.csv": "".join(f'{self._tokens[user]},{user},{user},"{group}"\n' for user, group in _GROUPS.items()),
        }
        for component in ("kube-scheduler", "kube-controller-manager"):
            token = self._tokens[f"system:{component}"]
            files[f"{component}.yaml"] = kubeconfig(self.url, self.certificate_authority, token)
        if self._webhook is not None:
            files["webhook.yaml"] = _webhook_config(*self._webhook)
        for name, text in files.items():
            path = self.folder / name
            path.touch(mode=0o600)
            path.write_text(text)

    def _api_server_flags(self, port: int) -> list[str]:
        folder = self.folder
        flags = {
            "advertise-address": "127.0.0.1",
            "allow-privileged": "true",
            "authorization-mode": "Node,RBAC",
            "bind-address": "127.0.0.1",
            "client-ca-file": folder / "authority.crt",
            # The second is off by default and on in OpenShift; functions need no right for it.
            "enable-admission-plugins": "NodeRestriction,OwnerReferencesPermissionEnforcement",
            # Endpoints refuse loopback addresses, and nothing here uses them.
            "endpoint-reconciler-type": "none",
            "etcd-servers": f"unix://{folder / 'client.sock'}",
            "secure-port": port,
            "service-account-issuer": "https://kubernetes.default.svc",
            "service-account-key-file": folder / "service-accounts.pub",
            "service-account-signing-key-file": folder / "service-accounts.key",
            "service-cluster-ip-range": SERVICE_CIDR,
            "tls-cert-file": folder / "server.crt",
            "tls-private-key-file": folder / "server.key",
            "token-auth-file": folder / "tokens.csv",
        }
        if self._webhook is not None:
            flags["authentication-token-webhook-config-file"] = folder / "webhook.yaml"
            flags["authentication-token-webhook-version"] = "v1"
        if self._feature_gates:
            flags["runtime-config"] = "api/beta=true"
        recorded = recording.api_server_flags(folder) if self._recorded else []
        return [*(f"--{name}={value}" for name, value in flags.items()), *recorded, *self._feature_gates]

    def _kube_scheduler_flags(self) -> list[str]:
        port = _free_port()
        self._scheduler_url = f"https://127.0.0.1:{port}"
        return [
            *self._client_flags("kube-scheduler"),
            "--bind-address=127.0.0.1",
            f"--secure-port={port}",
            f"--tls-cert-file={self.folder / 'server.crt'}",
            f"--tls-private-key-file={self.folder / 'server.key'}",
            "--authorization-always-allow-paths=/metrics",
            *self._scheduler_flags,
        ]

    def _controller_manager_flags(self) -> list[str]:
        folder = self.folder
        return [
            *self._client_flags("kube-controller-manager"),
            "--secure-port=0",
            f"--root-ca-file={folder / 'authority.crt'}",
            f"--service-account-private-key-file={folder / 'service-accounts.key'}",
            "--use-service-account-credentials=true",
        ]

    def _client_flags(self, component: str) -> list[str]:
        return [
            f"--kubeconfig={self.folder / f'{component}.yaml'}",
            f"--kube-api-qps={self._requests_per_second}",
            f"--kube-api-burst={2 * self._requests_per_second}",
            "--leader-elect=false",
            *self._feature_gates,
        ]

    def _start(self, program: Path, component: str, flags: list[str]) -> None:
        with (self.folder / f"{component}.log").open("wb") as log:
            # The pipe is the component's standard input: when this process ends, in any way, the component ends.
            self._processes[component] = subprocess.Popen(  # noqa: S603 - the binary of this module
                [program, component, *flags], stdin=subprocess.PIPE, stdout=log, stderr=log, cwd=self.folder
            )

    def _wait(self, component: str, is_ready: Callable[[], bool]) -> None:
        end = time.monotonic() + _SECONDS_TO_START
        while not is_ready():
            for name, process in self._processes.items():
                if process.poll() is not None:
                    raise ControlPlaneError(f"{name} ended with {process.returncode}: {self.log(name)[-2000:]}")
            if time.monotonic() > end:
                text = f"{component} is not ready after {_SECONDS_TO_START} s: {self.log(component)[-2000:]}"
                raise ControlPlaneError(text)
            time.sleep(_POLL_SECONDS)

    def _stop(self) -> None:
        """End the components, the one that was started last first."""
        for process in reversed(self._processes.values()):
            process.terminate()
            try:
                process.wait(_SECONDS_TO_STOP)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            if process.stdin is not None:
                process.stdin.close()


def _answers(client: Client, path: str) -> bool:
    try:
        client.get(path)
    except ApiError:
        return False
    return True


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def _new_keys() -> tuple[str, str]:
    """A new private key for service accounts' tokens, and its public key, in PEM."""
    key = ec.generate_private_key(ec.SECP256R1())
    pem = serialization.Encoding.PEM
    private = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    public = key.public_key().public_bytes(pem, serialization.PublicFormat.SubjectPublicKeyInfo)
    return private.decode(), public.decode()


def _webhook_config(url: str, authority: str) -> str:
    """The kubeconfig with which kube-apiserver calls its TokenReview webhook."""
    return writer.text(
        {**reader.document(kubeconfig(url, authority, "")), "users": [{"name": "tenon-local", "user": {}}]}
    )
