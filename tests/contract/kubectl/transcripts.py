"""Transcripts of kubectl sessions, with everything masked that differs between servers or days."""

import difflib
import os
import re
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

_MASKS = [
    # An object inside an error, whose order of fields and metadata differ between servers.
    (r'(patch: Invalid value: )"\{.*\}"', r"\1OBJECT"),
    (r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}", "UID"),
    (r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(\.\d+)?( ?Z| ?[+-]\d\d:?\d\d( UTC)?)?", "TIME"),
    (r"[A-Z][a-z]{2}, \d\d [A-Z][a-z]{2} \d{4} \d\d:\d\d:\d\d [+-]\d{4}", "TIME"),
    (r"(resourceVersion\"?: ?\"?)\d+", r"\1VERSION"),
    (r"(Resource Version:\s+)\d+", r"\1VERSION"),
    (r"https?://127\.0\.0\.1:\d+", "SERVER"),
    (r"\b(\d+d)?(\d+h)?(\d+m)?\d+s\b", "AGE"),
    (r"\b\d+[mhd]\b", "AGE"),
    (r"<invalid>|<unknown>", "AGE"),
    (r"\bv1\.\d+\.\d+[-+.\w]*", "RELEASE"),
    (r"\b10\.\d+\.\d+\.\d+\b", "ADDRESS"),
]
#: The random suffix of a generated name.
_SUFFIX = re.compile(r"-[bcdfghjklmnpqrstvwxz2456789]{5}\b")


class Step(msgspec.Struct, frozen=True):
    """One command. `{ns}` and `{node}` in it are this run's own names."""

    command: str
    stdin: str | None = None
    fails: bool = False
    #: Only the exit code is compared, since the output depends on the server.
    silent: bool = False
    #: Lines are compared without regard to their order.
    unordered: bool = False
    #: Keep only lines that match.
    only: str | None = None
    #: Repeated until what it prints matches: controllers of the real server have their say a moment later.
    until: str | None = None


class User:
    """A user with a kubectl, a server, and a namespace."""

    def __init__(self, kubectl: Path, kubeconfig: Path, home: Path, namespace: str) -> None:
        self.kubectl = kubectl
        self.namespace = namespace
        self.node = f"{namespace}-node"
        self._names = {"ns": namespace, "node": self.node}
        self._environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith("KUBE")},
            "KUBECONFIG": str(kubeconfig),
            "KUBECACHEDIR": str(home / "cache"),
            "HOME": str(home),
            "TZ": "UTC",
        }

    def run(self, steps: Sequence[Step]) -> list[str]:
        """The transcript: each command with its output and exit code."""
        return [line for step in steps for line in self._transcript(step)]

    def watch(self, command: str, steps: Sequence[Step], lines: int) -> list[str]:
        """The first `lines` lines of a command that keeps running while `steps` are done."""
        process = subprocess.Popen(
            self._words(command), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=self._environment
        )
        assert process.stdout is not None
        guard = threading.Timer(20, process.kill)
        guard.start()
        try:
            # The first line shows that the watch has begun.
            seen = [process.stdout.readline()]
            self.run(steps)
            seen += [process.stdout.readline() for _ in range(lines - 1)]
        finally:
            guard.cancel()
            process.kill()
            process.wait()
            process.stdout.close()
        return [f"$ kubectl {command}", *(self._masked(line.rstrip("\n")) for line in seen)]

    def _words(self, command: str) -> list[str]:
        # A plain split: commands here quote nothing, a blank inside a word is written as ~.
        words = [word.replace("~", " ") for word in self._named(command).split()]
        namespaced = [] if "-A" in words else ["--namespace", self.namespace]
        return [str(self.kubectl), *namespaced, *words]

    def _transcript(self, step: Step) -> list[str]:
        done, deadline = self._ran(step), time.monotonic() + 30
        while step.until is not None and not re.search(step.until, done.stdout):
            assert time.monotonic() < deadline, f"kubectl {self._named(step.command)} still prints {done.stdout}"
            done = self._ran(step)
        expected = done.returncode != 0 if step.fails else done.returncode == 0
        assert expected, f"kubectl {self._named(step.command)}: exit {done.returncode}\n{done.stdout}{done.stderr}"
        printed = (
            [] if step.silent else [*done.stdout.splitlines(), *(f"! {line}" for line in done.stderr.splitlines())]
        )
        lines = [self._masked(line) for line in printed]
        if step.only is not None:
            lines = [line for line in lines if re.search(step.only, line)]
        if step.unordered:
            lines.sort()
        return [f"$ kubectl {step.command}", *lines, *([f"exit {done.returncode}"] if done.returncode else [])]

    def _ran(self, step: Step) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            self._words(step.command),
            input=None if step.stdin is None else self._named(step.stdin),
            stdin=subprocess.DEVNULL if step.stdin is None else None,
            capture_output=True,
            text=True,
            timeout=60,
            env=self._environment,
            check=False,
        )

    def _named(self, text: str) -> str:
        for name, value in self._names.items():
            text = text.replace(f"{{{name}}}", value)
        return text

    def _masked(self, line: str) -> str:
        line = line.replace(self.node, "NODE").replace(self.namespace, "NS")
        for pattern, mask in _MASKS:
            line = re.sub(pattern, mask, line)
        line = _SUFFIX.sub("-XXXXX", line)
        # Columns are as wide as what was masked.
        indent = line[: len(line) - len(line.lstrip())]
        return indent + re.sub(r"\s{2,}", "  ", line.strip())


def difference(real: Sequence[str], embedded: Sequence[str]) -> str:
    """The differences between both transcripts, command by command; empty without any."""
    return "\n".join(difflib.unified_diff(real, embedded, "real", "embedded", lineterm="", n=2))


def subset(transcript: Sequence[str], of: Sequence[str]) -> list[str]:
    """The lines of the transcript that `of` does not have."""
    known = set(of)
    return [line for line in transcript if line not in known]


Scripts = Mapping[str, Sequence[Step]]
