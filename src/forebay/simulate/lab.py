"""The demo's lab: five machines with a power switch, random GPU Jobs that are the same for the same seed, a budget."""

import itertools
from collections.abc import Iterator, Mapping, Sequence
from random import Random
from typing import Any, Final

import msgspec

from forebay.simulate.market_goods import RUN_TIME
from forebay.simulate.power import Powered


class LabMachine(msgspec.Struct, frozen=True, kw_only=True):
    """A simulated machine and its GPU model."""

    machine: Powered
    gpu_type: str


#: Prices are the owner's cost per hour: power, cooling, wear.
MACHINES: Final = (
    LabMachine(machine=Powered(name="desk-1", gpus=1, boot=45, hourly_price="0.36"), gpu_type="RTX4090"),
    LabMachine(machine=Powered(name="desk-2", gpus=2, boot=60, hourly_price="0.72"), gpu_type="RTX4090"),
    LabMachine(machine=Powered(name="rack-4a", gpus=4, boot=120, driver=20, hourly_price="1.80"), gpu_type="L40S"),
    LabMachine(machine=Powered(name="rack-4b", gpus=4, boot=120, driver=20, hourly_price="1.80"), gpu_type="L40S"),
    LabMachine(machine=Powered(name="rack-8", gpus=8, boot=180, driver=30, hourly_price="5.40"), gpu_type="A100"),
)
#: This machine does not become a node on its first boot, so that the demo shows a JoinTimeout.
FAILS_FIRST_BOOT: Final = "rack-4b"
BOOT_TIMEOUT: Final = "5m"
#: GPUs of one Job that no machine of the lab can run: it waits forever, and the demo shows why.
TOO_LARGE: Final = 16
#: Number of that Job.
_TOO_LARGE_AT: Final = 5

#: This team has a budget, in a window of an hour. Its first Job uses the budget up, and its others wait for it.
BUDGET_TEAM: Final = "interns"
BUDGET_GPU_HOURS: Final = "0.25"
#: gracePeriodSeconds of the budget: long enough for the first Job to end.
BUDGET_GRACE: Final = 900
#: GPUs and run time of that team's Jobs, by the number of the Job.
_JOBS_OF_BUDGET_TEAM: Final = {2: (2, 480), 6: (1, 240), 8: (1, 240)}

_TEAMS: Final = ("vision", "speech", "robots")
#: GPUs of one pod, and the weight of that size.
_SIZES: Final = {1: 8, 2: 5, 4: 4, 8: 2}
#: Seconds: mean time between two Jobs, and range of their run time.
_MEAN_GAP: Final = 150.0
_RUN_TIMES: Final = (180, 900)


class Arrival(msgspec.Struct, frozen=True, kw_only=True):
    """One Job; `after` is the number of seconds since the Job before it."""

    after: float
    name: str
    pods: int
    gpus: int
    run_time: int
    #: Of the Job; a marked one may run as a remote container.
    annotations: Mapping[str, str] = {}

    @property
    def team(self) -> str:
        return self.name.rpartition("-")[0]

    def job(self, *, ttl: int, gates: Sequence[str] = ()) -> dict[str, Any]:
        """The Job; `gates` are the scheduling gates of its pods."""
        limits = {"nvidia.com/gpu": str(self.gpus)}
        return {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "metadata": {"name": self.name, "namespace": "default", "annotations": dict(self.annotations)},
            "spec": {
                "parallelism": self.pods,
                "completions": self.pods,
                "ttlSecondsAfterFinished": ttl,
                "template": {
                    "metadata": {
                        "labels": {"team": self.team},
                        "annotations": {"embedded.forebay.dev/run-time": f"{self.run_time}s"},
                    },
                    "spec": {
                        "restartPolicy": "Never",
                        "schedulingGates": [{"name": each} for each in gates],
                        "containers": [self._container(limits)],
                    },
                },
            },
        }

    def _container(self, limits: Mapping[str, str]) -> dict[str, Any]:
        container: dict[str, Any] = {"name": "train", "image": "example/train", "resources": {"limits": limits}}
        if self.annotations:
            # A remote container has no annotations: it is told by its environment how long it runs.
            container["env"] = [{"name": RUN_TIME, "value": f"{self.run_time}s"}]
        return container


def arrivals(seed: int) -> Iterator[Arrival]:
    """Random Jobs without end; the same for the same seed."""
    rng = Random(seed)  # noqa: S311 (a simulation, not a secret)
    for number in itertools.count(1):
        after = 5.0 if number == 1 else round(rng.expovariate(1 / _MEAN_GAP), 1)
        gpus = rng.choices(list(_SIZES), list(_SIZES.values()))[0]
        pods = rng.choice((1, 1, 2, 3)) if gpus == 1 else 1
        arrival = Arrival(
            after=after,
            name=f"{rng.choice(_TEAMS)}-{number:02}",
            pods=pods,
            gpus=gpus,
            run_time=rng.randrange(*_RUN_TIMES, 15),
        )
        if number == _TOO_LARGE_AT:
            arrival = msgspec.structs.replace(arrival, name=f"giant-{number:02}", pods=1, gpus=TOO_LARGE)
        elif number in _JOBS_OF_BUDGET_TEAM:
            gpus, run_time = _JOBS_OF_BUDGET_TEAM[number]
            name = f"{BUDGET_TEAM}-{number:02}"
            arrival = msgspec.structs.replace(arrival, name=name, pods=1, gpus=gpus, run_time=run_time)
        yield arrival
