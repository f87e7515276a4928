"""The control plane as one thing: started, asked for credentials, hurt on purpose, and gone afterwards."""

import contextlib
import enum
import http.client
import json
import os
import random
import shutil
import signal
import socket
import ssl
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tests.rig import parts, processes
from tests.rig.binaries import locate
from tests.rig.pki import Authority

START_LIMIT_SECONDS = 60.0
KEPT_LOG_DIRECTORIES = 5


class Tier(enum.StrEnum):
    """How much of a cluster there is."""

    API = "api"
    CLUSTER = "cluster"


class Part(enum.StrEnum):
    ETCD = "etcd"
    API_SERVER = "kube-apiserver"
    CONTROLLER_MANAGER = "kube-controller-manager"
    SCHEDULER = "kube-scheduler"
    KWOK = "kwok"


TIERS = {Tier.API: (Part.ETCD, Part.API_SERVER), Tier.CLUSTER: tuple(Part)}


class RigFailed(Exception):
    """A part did not start, or died. The message ends with the tails of the logs."""


class Rig:
    """A control plane. `start` makes one that lives as long as this process at most; `join` looks at another's."""

    def __init__(self, directory: Path, tier: Tier, ports: dict[str, int], authority: Authority) -> None:
        self.directory = directory
        self.tier = tier
        self.started_in = 0.0
        self._ports = ports
        self._authority = authority
        self._processes: dict[Part, processes.Process] = {}

    @property
    def url(self) -> str:
        return f"https://127.0.0.1:{self._ports[Part.API_SERVER]}"

    @property
    def etcd_url(self) -> str:
        return f"http://127.0.0.1:{self._ports[Part.ETCD]}"

    @property
    def ca_file(self) -> Path:
        return self._authority.certificate_file

    @property
    def admin_kubeconfig(self) -> Path:
        return self.directory / "admin.kubeconfig"

    @property
    def client_certificate(self) -> tuple[Path, Path]:
        """The administrator's certificate and key."""
        return self._authority.directory / "admin.crt", self._authority.directory / "admin.key"

    @property
    def audit_log(self) -> Path:
        """One JSON line per request, when started with `audit`."""
        return self.directory / "audit.log"

    @property
    def kubectl(self) -> Path:
        return locate("kubectl")["kubectl"]

    @classmethod
    def start(
        cls,
        tier: Tier | str = Tier.API,
        *,
        audit: bool = False,
        api_server_flags: Sequence[str] = (),
        verifies_kubelets: bool = False,
    ) -> "Rig":
        """A new control plane, ready for requests. Call it from the main thread; `stop` it, or use it in `with`.

        `verifies_kubelets`: its API server accepts only kubelets whose certificate the cluster has signed.
        """
        tier = Tier(tier)
        programs = locate(*TIERS[tier])
        processes.sweep(scratch_root())
        began = time.monotonic()
        directory = Path(tempfile.mkdtemp(prefix="", dir=scratch_root()))
        processes.record(directory / "owner.pid", os.getpid())
        ports = free_ports("etcd", "etcd-peer", *(str(part) for part in TIERS[tier] if part is not Part.ETCD))
        rig = cls(directory, tier, ports, Authority.create(directory / "pki"))
        if verifies_kubelets:
            authority = rig._authority.certificate_file
            api_server_flags = [*api_server_flags, f"--kubelet-certificate-authority={authority}"]
        try:
            rig._write(audit=audit, api_server_flags=api_server_flags, programs=programs)
            for part in TIERS[tier]:
                rig.start_part(part, ready=part is Part.API_SERVER)
            for part in TIERS[tier]:
                rig._await_ready(part)
        except BaseException:
            rig.stop(keep_logs=True)
            raise
        rig.started_in = time.monotonic() - began
        rig._describe()
        return rig

    @classmethod
    def join(cls, directory: Path) -> "Rig":
        """The control plane that another process runs in `directory`. Its parts are that process's to stop."""
        facts = json.loads((directory / "rig.json").read_text())
        rig = cls(directory, Tier(facts["tier"]), facts["ports"], Authority.load(directory / "pki"))
        rig.started_in = facts["started_in"]
        return rig

    def _write(self, *, audit: bool, api_server_flags: Sequence[str], programs: dict[str, Path]) -> None:
        directory, ports, authority = self.directory, self._ports, self._authority
        commands: dict[Part, Callable[[Path], list[str]]] = {
            Part.ETCD: lambda program: parts.etcd(program, directory, ports),
            Part.API_SERVER: lambda program: parts.api_server(
                program, directory, ports, authority, api_server_flags, audit=audit
            ),
            Part.CONTROLLER_MANAGER: lambda program: parts.controller_manager(
                program, directory, ports, authority, self.url
            ),
            Part.SCHEDULER: lambda program: parts.scheduler(program, directory, ports, authority, self.url),
            Part.KWOK: lambda program: parts.kwok(program, directory, ports, authority, self.url),
        }
        authority.write("admin", "rig-admin", [parts.MASTERS])
        self.admin_kubeconfig.write_text(parts.kubeconfig(self.url, authority, "rig-admin", [parts.MASTERS]))
        for part in TIERS[self.tier]:
            self._processes[part] = processes.Process(part, commands[part](programs[part]), directory)

    def _describe(self) -> None:
        facts = {"tier": self.tier, "ports": self._ports, "started_in": self.started_in}
        # Others wait for this file: it appears whole.
        scratch = self.directory / "rig.json.new"
        scratch.write_text(json.dumps(facts))
        scratch.replace(self.directory / "rig.json")

    def kubeconfig_for(self, user: str, groups: Sequence[str] = ()) -> Path:
        """A kubeconfig with a client certificate for this user, who may do what RBAC grants."""
        path = Path(tempfile.mkdtemp(prefix="user-", dir=self.directory)) / "kubeconfig"
        path.write_text(parts.kubeconfig(self.url, self._authority, user, groups))
        return path

    def token_for(self, service_account: str, seconds: int = 3600) -> str:
        """A token of the service account `namespace/name`."""
        namespace, name = service_account.split("/")
        body = {
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenRequest",
            "spec": {"expirationSeconds": seconds},
        }
        answer = self.call("POST", f"/api/v1/namespaces/{namespace}/serviceaccounts/{name}/token", body)
        return str(answer["status"]["token"])

    def call(self, method: str, path: str, body: object = None) -> Any:
        """One plain request as the administrator. For setting a scene; what is under test has its own client."""
        status, text = self._ask(method, path, None if body is None else json.dumps(body))
        if status >= 300:
            raise RigFailed(f"{method} {path}: {status} {text}")
        return json.loads(text)

    def _ask(self, method: str, path: str, body: str | None = None, timeout: float = 30) -> tuple[int, str]:
        context = ssl.create_default_context(cafile=str(self.ca_file))
        context.load_cert_chain(*self.client_certificate)
        port = self._ports[Part.API_SERVER]
        connection = http.client.HTTPSConnection("127.0.0.1", port, timeout=timeout, context=context)
        try:
            connection.request(method, path, body, {"Content-Type": "application/json"})
            answer = connection.getresponse()
            return answer.status, answer.read().decode()
        finally:
            connection.close()

    def compact(self) -> int:
        """Make etcd forget all history before now; the revision it compacted to. Only on a rig of your own."""
        status = self._etcd("/v3/kv/range", {"key": "AA=="})
        revision = int(status["header"]["revision"])
        self._etcd("/v3/kv/compaction", {"revision": revision, "physical": True})
        return revision

    def _etcd(self, path: str, body: object) -> Any:
        connection = http.client.HTTPConnection("127.0.0.1", self._ports[Part.ETCD], timeout=10)
        try:
            connection.request("POST", path, json.dumps(body))
            answer = connection.getresponse()
            return json.loads(answer.read())
        finally:
            connection.close()

    def start_part(self, part: Part | str, *, ready: bool = True) -> None:
        self._processes[Part(part)].start()
        if ready:
            self._await_ready(Part(part))

    def stop_part(self, part: Part | str, *, kill: bool = False) -> None:
        self._processes[Part(part)].stop(kill=kill)

    def restart(self, part: Part | str, *, kill: bool = False) -> None:
        self.stop_part(part, kill=kill)
        self.start_part(part)

    def pause(self, part: Part | str) -> None:
        """SIGSTOP: it keeps its connections and answers nothing."""
        self._processes[Part(part)].pause()

    def resume(self, part: Part | str) -> None:
        self._processes[Part(part)].signal(signal.SIGCONT)

    @contextlib.contextmanager
    def paused(self, part: Part | str) -> Iterator[None]:
        self.pause(part)
        try:
            yield
        finally:
            self.resume(part)

    def _await_ready(self, part: Part) -> None:
        process = self._processes[part]
        deadline = time.monotonic() + START_LIMIT_SECONDS
        while not self._ready(part):
            if process.pid is None:
                raise RigFailed(f"{part} ended with exit code {process.exit_code}\n{self.tails()}")
            if time.monotonic() > deadline:
                raise RigFailed(f"{part} was not ready after {START_LIMIT_SECONDS:.0f} s\n{self.tails()}")
            time.sleep(0.05)

    def _ready(self, part: Part) -> bool:
        try:
            if part is Part.API_SERVER:
                return self._ask("GET", "/readyz")[0] == 200
            if part in {Part.ETCD, Part.KWOK}:
                path = "/health" if part is Part.ETCD else "/healthz"
                connection = http.client.HTTPConnection("127.0.0.1", self._ports[part], timeout=5)
            else:
                # Their serving certificates are self-signed and forgotten: nobody else can be behind this port.
                context = ssl._create_unverified_context()
                path = "/healthz"
                connection = http.client.HTTPSConnection("127.0.0.1", self._ports[part], timeout=5, context=context)
            try:
                connection.request("GET", path)
                return connection.getresponse().status == 200
            finally:
                connection.close()
        except (OSError, http.client.HTTPException):
            return False

    def tails(self, lines: int = 15) -> str:
        """The last lines of every log, for a message."""
        return "\n".join(f"--- {process.log.name}\n{process.tail(lines)}" for process in self._processes.values())

    def stop(self, *, keep_logs: bool = False) -> Path | None:
        """End every part and remove the directory. With `keep_logs`, where the logs are now."""
        # Backwards, and without ceremony: nothing that they would still write matters to anyone.
        for process in reversed(self._processes.values()):
            process.stop(kill=True)
        kept = _keep(self.directory) if keep_logs else None
        shutil.rmtree(self.directory, ignore_errors=True)
        return kept

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop(keep_logs=error is not None)


def scratch_root() -> Path:
    """Memory where there is some to have, else the disk: etcd's data and the logs live here."""
    shared = Path("/dev/shm")
    memory = shared.is_dir() and os.access(shared, os.W_OK) and shutil.disk_usage(shared).free > 2**30
    root = (shared if memory else Path(tempfile.gettempdir())) / f"forebay-rig-{os.getuid()}"
    root.mkdir(mode=0o700, exist_ok=True)
    return root


def _keep(directory: Path) -> Path:
    root = Path(tempfile.gettempdir()) / f"forebay-rig-logs-{os.getuid()}"
    root.mkdir(mode=0o700, exist_ok=True)
    kept = root / f"{time.strftime('%Y%m%d-%H%M%S')}-{directory.name}"
    if (directory / "logs").exists():
        shutil.copytree(directory / "logs", kept)
    for old in sorted(root.iterdir())[:-KEPT_LOG_DIRECTORIES]:
        shutil.rmtree(old, ignore_errors=True)
    return kept


def free_ports(*names: str) -> dict[str, int]:
    """A port for each name, below the range from which the kernel serves outgoing connections."""
    chosen: dict[str, int] = {}
    candidates = random.sample(range(20000, 32000), 500)
    for name in names:
        for port in candidates:
            candidates.remove(port)
            with socket.socket() as probe, contextlib.suppress(OSError):
                probe.bind(("127.0.0.1", port))
                chosen[name] = port
                break
    if missing := set(names) - set(chosen):
        raise RigFailed(f"no free port on loopback for {', '.join(sorted(missing))}")
    return chosen
