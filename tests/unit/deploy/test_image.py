"""The Dockerfile: parsed, and its steps run one by one, because tests have no container engine."""

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
        if step.word == "ARG" and not found:
            continue
        if step.word == "FROM":
            found.append([])
        found[-1].append(step)
    return found


def arguments(stage: list[Step], word: str) -> list[str]:
    return [step.rest for step in stage if step.word == word]


def sources() -> list[str]:
    """Files of the repository that the build copies."""
    copies = (step.rest.split() for stage in stages() for step in stage if step.word == "COPY")
    return [source for copy in copies if not copy[0].startswith("--from") for source in copy[:-1]]


def test_the_base_image_is_slim_pinned_by_its_tag_and_can_be_given_by_its_digest():
    argument, default = next(
        line.removeprefix("ARG ").split("=", 1)
        for line in (ROOT / "Dockerfile").read_text().splitlines()
        if line.startswith("ARG ")
    )
    name, _, tag = default.partition(":")
    assert name == "python"
    assert tag[0].isdigit()
    assert tag.endswith("-slim-bookworm")
    for stage in stages():
        assert arguments(stage, "FROM")[0].split()[0] == f"${{{argument}}}"


def test_every_package_is_pinned_by_its_hash():
    build, _ = stages()
    installs = [step for step in arguments(build, "RUN") if "install" in step or "sync" in step or "build" in step]
    assert len(installs) == 4
    for step in installs:
        assert "--require-hashes" in step or "--no-index" in step, step


def test_the_last_stage_copies_only_the_built_environment_and_has_no_pip():
    _, last = stages()
    assert arguments(last, "COPY") == ["--from=build /opt/forebay /opt/forebay"]
    assert arguments(last, "RUN") == ["pip uninstall --yes --root-user-action=ignore pip"]


def test_the_image_and_the_manifests_agree_on_user_port_and_command():
    _, last = stages()
    user, group = arguments(last, "USER")[0].split(":")
    assert (int(user), int(group)) == (POD_SECURITY["runAsUser"], POD_SECURITY["runAsGroup"])
    assert int(user) > 0
    assert CONTAINER_SECURITY["readOnlyRootFilesystem"]
    assert arguments(last, "STOPSIGNAL") == ["SIGTERM"]
    assert arguments(last, "EXPOSE") == [str(PORT)]
    assert json.loads(arguments(last, "ENTRYPOINT")[0]) == ["forebay"]
    (deployment,) = (each for each in install_manifests() if each["kind"] == "Deployment")
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    assert json.loads(arguments(last, "CMD")[0]) == container["args"]


def test_the_build_context_has_only_what_is_copied():
    lines = (ROOT / ".dockerignore").read_text().splitlines()
    assert lines[1] == "*"
    included = {line[1:] for line in lines if line.startswith("!")}
    assert {source.rstrip("/") for source in sources()} == included
    assert all((ROOT / each).exists() for each in included)
    assert not any(fnmatch(secret, each) for each in included for secret in (".git", ".venv", "tests", ".env"))


def test_either_set_of_packages_is_locked_and_the_larger_one_only_adds_to_the_other():
    locked = {name: (ROOT / f"requirements/{name}.txt").read_text().splitlines() for name in ("run", "telemetry")}
    # Without what they say about the versions of Python.
    pins = {name: {line.split()[0] for line in lines if "==" in line} for name, lines in locked.items()}
    assert pins["run"] < pins["telemetry"]
    added = {line.partition("==")[0] for line in pins["telemetry"] - pins["run"]}
    assert {"opentelemetry-sdk", "opentelemetry-exporter-otlp-proto-http", "sentry-sdk"} <= added


def environment_of(stage: list[Step]) -> dict[str, str]:
    lines = (*arguments(stage, "ARG"), *arguments(stage, "ENV"))
    return dict(pair.split("=", 1) for line in lines for pair in line.split())


class Image(NamedTuple):
    place: Path
    here: Path
    #: The step that failed, with its output.
    failure: str | None


def build(directory: Path, wheels: Path) -> Image:
    """Runs the build steps in a directory of their own, from these wheels only: no index, no cache."""
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
    for step in arguments(first, "RUN"):
        # `make env` has installed uv already, from the same file and by the same hash.
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
def test_a_package_with_another_hash_is_refused(tmp_path, package, during):
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
def test_the_built_command_runs_without_anything_else(tmp_path):
    place, here, failure = build(tmp_path, WHEELS)
    assert failure is None, failure
    # As in the container: an environment with nothing but the image's own, a home that cannot be written.
    _, last = stages()
    environment = environment_of(last)
    environment["PATH"] = f"{place}/bin"
    environment["HOME"] = "/nonexistent"

    def run(*words):
        return subprocess.run(
            ["forebay", *words],
            executable=place / "bin/forebay",
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )

    helped = run("--help")
    assert (helped.returncode, helped.stderr) == (0, "")
    assert "run" in helped.stdout
    # The image has everything that `run` needs, also the libraries that are imported late.
    nowhere = run("run", "--health-server-address=127.0.0.1:0")
    assert nowhere.returncode == 2
    assert "Traceback" not in nowhere.stderr
    assert nowhere.stderr.startswith("forebay: ")
    installed = {path.name.split("-")[0] for path in place.glob("lib/python*/site-packages/*.dist-info")}
    assert "forebay" in installed
    assert not installed & {"pip", "setuptools", "hatchling", "pytest", "cel_python"}
    (wheel,) = (here / "dist").glob("*.whl")
    assert wheel.name.endswith("-py3-none-any.whl")
