"""The Dockerfile, read, and its steps done by hand: there is no engine to build it where tests run."""

import json
import os
import shlex
import shutil
import subprocess
import zipfile
from fnmatch import fnmatch
from pathlib import Path
from typing import NamedTuple

import pytest

from forebay.install.manifests import CONTAINER_SECURITY, POD_SECURITY, PORT, install_manifests
from tests.needs import UV, WHEELS
from tests.unit.deploy.helm import ROOT


class Step(NamedTuple):
    word: str
    rest: str


def stages() -> list[list[Step]]:
    found: list[list[Step]] = []
    for line in (ROOT / "Dockerfile").read_text().splitlines():
        if not line or line.startswith("#"):
            continue
        step = Step(*line.split(maxsplit=1))
        if step.word == "FROM":
            found.append([])
        found[-1].append(step)
    return found


def said(stage: list[Step], word: str) -> list[str]:
    return [step.rest for step in stage if step.word == word]


def sources() -> list[str]:
    """What the build takes from the repository."""
    copies = (step.rest.split() for stage in stages() for step in stage if step.word == "COPY")
    return [source for copy in copies if not copy[0].startswith("--from") for source in copy[:-1]]


def test_the_base_is_slim_and_its_tag_says_which():
    for stage in stages():
        name, _, tag = said(stage, "FROM")[0].split()[0].partition(":")
        assert name == "python"
        assert tag[0].isdigit()
        assert tag.endswith("-slim-bookworm")


def test_every_package_is_named_by_its_hash():
    build, _ = stages()
    installs = [step for step in said(build, "RUN") if "install" in step or "sync" in step or "build" in step]
    assert len(installs) == 4
    for step in installs:
        assert "--require-hashes" in step or "--no-index" in step, step


def test_the_last_stage_takes_only_what_was_built_and_can_install_nothing():
    _, last = stages()
    assert said(last, "COPY") == ["--from=build /opt/forebay /opt/forebay"]
    assert said(last, "RUN") == ["pip uninstall --yes --root-user-action=ignore pip"]


def test_it_runs_as_the_user_that_the_manifests_name_and_ends_by_the_signal_it_answers():
    _, last = stages()
    user, group = said(last, "USER")[0].split(":")
    assert (int(user), int(group)) == (POD_SECURITY["runAsUser"], POD_SECURITY["runAsGroup"])
    assert int(user) > 0
    assert CONTAINER_SECURITY["readOnlyRootFilesystem"]
    assert said(last, "STOPSIGNAL") == ["SIGTERM"]
    assert said(last, "EXPOSE") == [str(PORT)]
    assert json.loads(said(last, "ENTRYPOINT")[0]) == ["forebay"]
    (deployment,) = (each for each in install_manifests() if each["kind"] == "Deployment")
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    assert json.loads(said(last, "CMD")[0]) == container["args"]


def test_what_is_copied_is_let_in_and_nothing_else_is():
    lines = (ROOT / ".dockerignore").read_text().splitlines()
    assert lines[1] == "*"
    let_in = {line[1:] for line in lines if line.startswith("!")}
    assert {source.rstrip("/") for source in sources()} == let_in
    assert all((ROOT / each).exists() for each in let_in)
    assert not any(fnmatch(secret, each) for each in let_in for secret in (".git", ".venv", "tests", ".env"))


def environment_of(stage: list[Step]) -> dict[str, str]:
    return dict(pair.split("=", 1) for line in said(stage, "ENV") for pair in line.split())


class Image(NamedTuple):
    place: Path
    here: Path
    #: The step that failed, with what it printed.
    failure: str | None


def build(directory: Path, wheels: Path) -> Image:
    """The steps of the build, in a place of their own, from these wheels and nothing else: no index, no cache."""
    place = directory / "opt/forebay"
    here = directory / "build"
    here.mkdir()
    for source in sources():
        (shutil.copytree if (ROOT / source).is_dir() else shutil.copy)(ROOT / source, here / source)
    first, _ = stages()
    environment = {
        **environment_of(first),
        "PATH": f"{UV.parent}:{os.environ['PATH']}",
        "HOME": str(directory),
        "UV_OFFLINE": "1",
        "UV_NO_INDEX": "1",
        "UV_FIND_LINKS": str(wheels),
    }
    for step in said(first, "RUN"):
        # uv itself is the one that `make env` has installed, from the same file and by the same hash.
        if step.startswith("pip "):
            continue
        command = step.replace("/opt/forebay", shlex.quote(str(place)))
        done = subprocess.run(
            ["/bin/sh", "-c", command], cwd=here, env=environment, capture_output=True, text=True, check=False
        )
        if done.returncode:
            return Image(place, here, f"{step}\n{done.stderr}")
    return Image(place, here, None)


@pytest.mark.image
@pytest.mark.parametrize(("package", "during"), [("idna", "uv pip sync"), ("hatchling", "uv build")])
def test_a_package_that_is_not_the_one_named_is_refused(tmp_path, package, during):
    wheels = tmp_path / "wheels"
    shutil.copytree(WHEELS, wheels)
    (wheel,) = wheels.glob(f"{package}-*.whl")
    with zipfile.ZipFile(wheel, "a") as archive:
        archive.comment = b"another"

    failure = build(tmp_path, wheels).failure

    assert failure is not None
    assert failure.startswith(during)
    assert f"Hash mismatch for `{package}" in failure


@pytest.mark.image
def test_its_steps_make_a_command_that_runs_in_a_bare_place(tmp_path):
    place, here, failure = build(tmp_path, WHEELS)
    assert failure is None, failure
    # As in the container: an environment with nothing but the image's own, a home that cannot be written.
    _, last = stages()
    environment = environment_of(last)
    environment["PATH"] = f"{place}/bin"
    environment["HOME"] = "/nonexistent"

    def run(*arguments):
        return subprocess.run(
            ["forebay", *arguments],
            executable=place / "bin/forebay",
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )

    helped = run("--help")
    assert (helped.returncode, helped.stderr) == (0, "")
    assert "run" in helped.stdout
    # What the image has is what `run` needs, down to the libraries that are imported late.
    nowhere = run("run", "--health-server-address=127.0.0.1:0")
    assert nowhere.returncode == 2
    assert "Traceback" not in nowhere.stderr
    assert nowhere.stderr.startswith("forebay: ")
    installed = {path.name.split("-")[0] for path in place.glob("lib/python*/site-packages/*.dist-info")}
    assert "forebay" in installed
    assert not installed & {"pip", "setuptools", "hatchling", "pytest", "cel_python"}
    (wheel,) = (here / "dist").glob("*.whl")
    assert wheel.name.endswith("-py3-none-any.whl")
