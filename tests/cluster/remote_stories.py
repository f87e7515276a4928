"""Jobs at a conformance server of RunPod as a story on a real control plane sees them."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from forebay.offload.exit_code import nonce_of
from tests.cluster import operators
from tests.cluster.test_offload import JOBS, PODS, Story, job
from tests.contract.providers.runpod.server import RunpodCloud
from tests.rig import Rig, RigFailed

T = TypeVar("T")


async def until(answer: Callable[[], Awaitable[T]], what: str) -> T:
    """As elsewhere, with the patience that 60 requests a minute for all containers need."""
    return await operators.until(answer, what, 240)


class RemoteJobs(Story):
    """Runs Jobs whose containers end as the story says."""

    def __init__(self, rig: Rig, cloud: RunpodCloud) -> None:
        super().__init__(rig)
        self.cloud = cloud

    async def start(self, name: str, *, runs: str = "10h", pod: dict[str, Any] | None = None, **spec: Any) -> None:
        made = job(name, runs=runs, **spec)
        made["spec"]["template"]["spec"].update(pod or {})
        await self.call("POST", JOBS, made)

    async def change(self, path: str, change: Callable[[dict[str, Any]], None]) -> None:
        """Changes an object, as often as somebody else changes it in between."""

        async def changed() -> bool:
            found = await self.call("GET", path)
            change(found)
            try:
                await self.call("PUT", path, found)
            except RigFailed as failure:
                if ": 409 " not in str(failure):
                    raise
                return False
            return True

        await until(changed, f"{path} is changed")

    async def suspend(self, name: str, *, suspended: bool = True) -> None:
        await self.change(f"{JOBS}/{name}", lambda found: found["spec"].update(suspend=suspended))

    async def running(self, name: str, count: int = 1) -> list[dict[str, Any]]:
        """The pods of the Job, once so many of them run."""

        async def found() -> list[dict[str, Any]]:
            pods = [each for each in await self.pods(name) if each["status"].get("phase") == "Running"]
            return pods if len(pods) >= count else []

        return await until(found, f"{count} pods of {name} run")

    async def has_ended(self, name: str, how: str) -> dict[str, Any]:
        """The status of the Job, which must end like this."""
        found = await until(lambda: self.ended(name), f"{name} ends")
        assert found == how, f"{name} ended as {found}"
        return dict((await self.call("GET", f"{JOBS}/{name}"))["status"])

    async def is_gone(self, path: str) -> bool:
        try:
            await self.call("GET", path)
        except RigFailed as failure:
            return ": 404 " in str(failure)
        return False

    async def delete(self, name: str, propagation: str) -> None:
        await self.call("DELETE", f"{JOBS}/{name}?propagationPolicy={propagation}")

    async def no_pods(self, name: str) -> None:
        async def none() -> bool:
            return not await self.pods(name)

        await until(none, f"the pods of {name} are gone")

    def exits(self, pod: dict[str, Any], code: int, *, restarts: bool = False) -> None:
        """The command in the container of the pod ends; with `restarts` it is started again there."""
        container = pod["metadata"]["annotations"]["runpod.io/pod-id"]
        nonce = nonce_of(self.cloud.orders[container]["env"]["FOREBAY_INSTANCE"])
        self.cloud.write(container, f"forebay-{'restart' if restarts else 'exit'} {nonce} {code}")

    async def pod(self, name: str) -> dict[str, Any]:
        return dict(await self.call("GET", f"{PODS}/{name}"))


def reasons(status: dict[str, Any]) -> dict[str, str]:
    """Reasons of the conditions that hold."""
    return {each["type"]: each.get("reason", "") for each in status.get("conditions", ()) if each["status"] == "True"}


async def all_of(stories: dict[str, Any]) -> None:
    """Tells these stories at the same time; all that failed are named."""
    results = await asyncio.gather(*stories.values(), return_exceptions=True)
    failed = {name: repr(each) for name, each in zip(stories, results, strict=True) if isinstance(each, BaseException)}
    assert not failed, json.dumps(failed, indent=1)
