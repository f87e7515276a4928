"""What 1,000 remote pods cost and how fresh what is shown of them is, at the conformance server of RunPod.

    python bench/offload.py [--pods N] [--json]

In virtual time: N Jobs become N containers, without RunPod's rate limits. Then another leader takes over and keeps to
them, as the server does (429): `takeover_requests_per_minute` is the most in any sixty seconds until it follows all N
logs, which takes `all_followed_s`; ten commands ended while nobody led, and the last of their pods shows it after
`ended_away_s`. Then one container ends every five seconds for five minutes, half of them without a
command that could report its end, while twenty people follow logs: `requests_per_minute` is the most in any sixty
seconds; `status_lag_s`, from the end of a command to the status of its pod; `listed_lag_s`, the same for containers
that only listings show; `log_lag_s`, from a line in a container to whoever follows its log. Network and computing take
no time there; `cpu_share` tells how much of one core it is, with the embedded cluster and RunPod's server.

In real time: `create_ms`, from a forced Job to the arrival of the request that creates its container, on an otherwise
empty cluster in this process. `live_...`: the same figures in real time over sockets, on a real control plane, with the
operator as a process of its own (`offload_live.py`): N containers run, one ends every five seconds for three minutes,
twenty people follow logs as `kubectl logs -f` does, through the API server.

Ends with 1 where a bar is missed: 60 requests, 5 s, 2 s, 300 ms (99th percentiles).
"""

import argparse
import asyncio
import json
import sys
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import structlog

from forebay.embedded.api.kinds import CONFIG_MAP_KIND, POD_KIND
from forebay.net.transport import Headers, Response
from forebay.offload.log_view import LogQuery
from forebay.simulate.virtual_time import run

# The conformance server and the worlds of the tests are in the repository, beside this directory.
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from phased_runpod import NAME, Phase, add_to
from tests.contract.providers.runpod.server import RunpodCloud, gpu
from tests.engine.market_world import cloud_operator, clouds
from tests.engine.offload_world import KEY, MANAGED, Offload
from tests.rig.pki import Authority

MINUTES = 5
BARS = {
    "requests_per_minute": 60,
    "takeover_requests_per_minute": 60,
    "status_lag_s": 5.0,
    "listed_lag_s": 5.0,
    "log_lag_s": 2.0,
    "create_ms": 300.0,
}
BARS |= {f"live_{name}": bar for name, bar in BARS.items() if not name.startswith("takeover")}
LIVE_SECONDS = 180.0
FORCED = 15
CHECKED_EACH = 100


class CountedCloud(RunpodCloud):
    """Notes when each request comes. Of its own answers it checks some: those of a thousand pods take half a second."""

    def __init__(self, *arguments: Any, clock: Callable[[], float], **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.time = clock
        self.arrived: list[tuple[float, str]] = []
        self.answered: Counter[str] = Counter()
        #: Pods whose log somebody has asked for since the list was cleared.
        self.followed: set[str] = set()

    def keep_limits(self) -> None:
        """From now on more than 60 requests a minute are answered by 429."""
        self._enforces_limits = True

    def _checked(self, operation: Any, request: Any, outcome: Any) -> Any:
        self.answered[operation.name] += 1
        if self.answered[operation.name] % CHECKED_EACH == 1:
            return super()._checked(operation, request, outcome)
        return Response(outcome.status, Headers(outcome.headers), outcome.body)

    async def answer(self, request: Any) -> Any:
        path = request.url.partition("?")[0].rpartition("/v2")[2]
        self.arrived.append((self.time(), f"{request.method} {path}"))
        if path.endswith("/logs") and self._enforces_limits:
            self.followed.add(path.split("/")[2])
        return await super().answer(request)


class Port:
    """Opens no socket; whoever follows a log asks what is behind it."""

    address = "127.0.0.1"

    def __init__(self) -> None:
        self.logs: Any = None

    @asynccontextmanager
    async def __call__(self, logs: Any, _access: Any, _context: Any) -> AsyncIterator[int]:
        self.logs = logs
        yield 10250


def account(boot: float) -> Callable[[Any], CountedCloud]:
    skus = gpu("NVIDIA A40", price="0.39", memory=48, boot=boot)
    return lambda _nodes: CountedCloud(
        skus, name="runpod", key=KEY, clock=lambda: asyncio.get_running_loop().time(), enforces_limits=False
    )


def percentile(values: list[float], part: float = 0.99) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * part))] if ordered else float("nan")


async def many(pods: int) -> dict[str, float]:
    async with clouds(account(10), events=False) as cloud:
        far = Offload(cloud)
        far.pool(limits={"maxNodes": pods, "maxHourlyCost": "100000"}, provider=NAME)
        far.store.create(CONFIG_MAP_KIND, _authority())
        async with cloud_operator(cloud):
            await asyncio.sleep(10)
            for number in range(pods):
                far.job(f"j{number}", runs="10000h", pod=None if number % 2 else {"containers": [_plain()]})
            while sum(each["status"].get("phase") == "Running" for each in far.pods()) < pods:  # noqa: ASYNC110
                await asyncio.sleep(5)
        Phase.paced = True
        # The minute before does not count for what the next leader may send.
        await asyncio.sleep(60)
        far.runpod.arrived.clear()
        far.runpod.keep_limits()
        port, loop = Port(), asyncio.get_running_loop()
        away = _end_some(far)
        async with cloud_operator(cloud, "b", port_server=port):
            began = loop.time()
            while not all(each["status"]["phase"] == "Succeeded" for each in _named(far, away)):  # noqa: ASYNC110
                await asyncio.sleep(1)
            away_s = loop.time() - began
            while len(far.runpod.followed) < pods:  # noqa: ASYNC110
                await asyncio.sleep(5)
            followed_s = loop.time() - began
            busiest = _busiest(far, began, loop.time())
            found = await _measured(far, port)
        assert not far.runpod.violations, far.runpod.violations[:3]
        taken_over = {"takeover_requests_per_minute": busiest, "all_followed_s": followed_s, "ended_away_s": away_s}
        return {**found, **taken_over}


def _end_some(far: Offload) -> set[str]:
    """Ends ten commands while nobody leads. Returns the names of their pods."""
    pods = sorted(far.store.list(POD_KIND), key=lambda each: each["metadata"]["name"])
    instances = {each["metadata"]["name"]: each["metadata"]["annotations"]["runpod.io/pod-id"] for each in pods}
    reporting = [name for name, instance in instances.items() if far.runpod.orders[instance].get("args")]
    chosen = reporting[-10:]
    for name in chosen:
        far.runpod.exits(instances[name], 0)
    return set(chosen)


def _named(far: Offload, names: set[str]) -> list[Any]:
    return [each for each in far.store.list(POD_KIND) if each["metadata"]["name"] in names]


def _busiest(far: Offload, begin: float, end: float) -> int:
    """The most requests in any sixty seconds of the span."""
    times = [at for at, _ in far.runpod.arrived if begin <= at < end]
    return max((sum(at <= each < at + 60 for each in times[first:]) for first, at in enumerate(times)), default=0)


async def _measured(far: Offload, port: Port) -> dict[str, float]:
    loop = asyncio.get_running_loop()
    running = {
        each["metadata"]["name"]: each["metadata"]["annotations"]["runpod.io/pod-id"]
        for each in far.store.list(POD_KIND)
        if each["status"]["phase"] == "Running"
    }
    ended_at: dict[str, float] = {}
    lags: dict[str, float] = {}

    def seen(change: Any) -> None:
        new = change.new
        name = new["metadata"]["name"] if new is not None else ""
        if name in ended_at and name not in lags and new["status"].get("phase") == "Succeeded":
            lags[name] = loop.time() - ended_at[name]

    far.store.subscribe(POD_KIND, seen)
    followed = sorted(running)[-20:]
    written: dict[str, float] = {}
    log_lags: list[float] = []
    readers = [asyncio.create_task(_follow(port, name, written, log_lags)) for name in followed]
    await asyncio.sleep(30)
    began, busy = loop.time(), time.process_time()
    reporting, plain = [], []
    names = sorted(running)[:-20]
    for second in range(MINUTES * 60):
        name = names[second % len(names)]
        if second % 5 == 0 and name not in ended_at:
            instance = far.runpod.instances[running[name]]
            (reporting if far.runpod.orders[instance.id].get("args") else plain).append(name)
            ended_at[name] = loop.time()
            far.runpod.exits(running[name], 0)
        line = f"line {second}"
        written[line] = loop.time()
        far.runpod.write(running[followed[second % 20]], line)
        await asyncio.sleep(1)
    requests, cpu = _busiest(far, began, loop.time()), (time.process_time() - busy) / (loop.time() - began)
    await asyncio.sleep(60)
    for reader in readers:
        reader.cancel()
    await asyncio.gather(*readers, return_exceptions=True)
    missing = [name for name in ended_at if name not in lags]
    assert not missing, f"{len(missing)} pods never showed their end"
    return {
        "requests_per_minute": requests,
        "cpu_share": cpu,
        "status_lag_s": percentile([lags[name] for name in reporting]),
        "listed_lag_s": percentile([lags[name] for name in plain]),
        "log_lag_s": percentile(log_lags),
        "log_lines": len(log_lags),
        "ended": len(lags),
    }


async def _follow(port: Port, pod: str, written: dict[str, float], lags: list[float]) -> None:
    loop = asyncio.get_running_loop()
    chunks = await port.logs.open("default", pod, "main", LogQuery(follow=True))
    async for chunk in chunks:
        lags += [loop.time() - written[line] for line in chunk.decode().splitlines() if line in written]


def _plain() -> dict[str, Any]:
    """A container without a command: nothing reports its exit code."""
    return {"name": "main", "image": "work:1", "resources": {"limits": {"nvidia.com/gpu": 1}}}


def _authority() -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as directory:
        text = Authority.create(Path(directory) / "pki").certificate_file.read_text()
    metadata = {"name": "extension-apiserver-authentication", "namespace": "kube-system"}
    return {"metadata": metadata, "data": {"client-ca-file": text}}


async def forced() -> dict[str, float]:
    """In real time: Jobs that leave at once, one after another."""
    async with clouds(account(1), events=False) as cloud:
        cloud.markets["runpod"].time = time.perf_counter
        far = Offload(cloud)
        far.pool(limits={"maxNodes": FORCED * 2, "maxHourlyCost": "1000"})
        async with cloud_operator(cloud):
            await asyncio.sleep(3)
            delays = []
            for number in range(FORCED):
                made = time.perf_counter()
                far.job(f"f{number}", runs="10000h", marks={**MANAGED, "runpod.io/offload": "true"})
                delays.append(await _arrival(far, number, made))
                # RunPod's own limit of 60 requests a minute is not what is measured.
                await asyncio.sleep(5)
    return {"create_ms": percentile(delays) * 1000, "create_p50_ms": percentile(delays, 0.5) * 1000}


async def _arrival(far: Offload, number: int, made: float) -> float:
    while True:
        creations = [at for at, what in far.runpod.arrived if what == "POST /pods"]
        if len(creations) > number:
            return creations[number] - made
        assert time.perf_counter() - made < 60, f"Job {number} has no container"
        await asyncio.sleep(0.002)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pods", type=int, default=1000)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--only", choices=("many", "forced", "live"))
    arguments = parser.parse_args()
    began = time.monotonic()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger("error"))
    found: dict[str, float] = {}
    if arguments.only in {None, "many"}:
        with tempfile.TemporaryDirectory() as beside:
            sys.path.insert(0, beside)
            add_to(Path(beside))
            found |= run(many(arguments.pods))
    if arguments.only in {None, "forced"}:
        found |= asyncio.run(forced())
    if arguments.only in {None, "live"}:
        # The binaries of a control plane are looked for only where one is needed.
        from offload_live import live

        found |= asyncio.run(live(arguments.pods, LIVE_SECONDS, lambda: account(2)(None), percentile))
    found["seconds"] = time.monotonic() - began
    missed = [name for name, bar in BARS.items() if name in found and not found[name] <= bar]
    if arguments.json:
        print(
            json.dumps(
                {"pods": arguments.pods, **{key: round(each, 3) for key, each in found.items()}, "missed": missed}
            )
        )
    else:
        for name, value in found.items():
            bar = f"  (bar {BARS[name]:g})" if name in BARS else ""
            print(f"{name:22} {value:10.3f}{bar}")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
