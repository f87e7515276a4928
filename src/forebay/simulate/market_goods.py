"""What a market rents out: the kinds there are, and one rented machine or container."""

import asyncio
from collections.abc import Callable, Mapping
from datetime import datetime
from decimal import Decimal
from typing import Any, Final, Protocol

import msgspec

from forebay.api.values import NotADuration, duration
from forebay.model.sources import InstancePhase
from forebay.net.clock import now
from forebay.providers.simulated.wire import MarketGood, MarketInstance, MarketLogLine, MarketOffer, MarketOrder
from forebay.simulate.market_bill import BillLine, Tariff

#: Environment variables of a container that say how it goes: how long it runs (default: until it is terminated), and
#: its exit code.
RUN_TIME: Final = "SIMULATED_RUN_TIME"
EXIT_CODE: Final = "SIMULATED_EXIT_CODE"


class Sku(MarketGood, frozen=True, kw_only=True):
    """One kind of machine or container in one zone. Times in seconds. Without `stock` there is no end of it."""

    gpus: int
    #: From the order until it is a node, or until its container runs.
    boot: float = 90.0
    #: From there until the node's GPUs are allocatable.
    driver: float = 20.0
    #: From the termination call until nothing is left of it. It is billed until then.
    shutdown: float = 5.0
    #: Billing terms.
    minimum: int = 60
    increment: int = 1
    gpu_resource: str = "nvidia.com/gpu"
    allocatable: Mapping[str, str] = msgspec.field(default_factory=lambda: {"cpu": "32", "memory": "128Gi"})

    @property
    def key(self) -> tuple[str, str | None, str | None, bool]:
        return self.instance_type, self.region, self.zone, self.spot

    def offer(self, stock: int | None) -> MarketOffer:
        common: dict[str, Any] = {name: getattr(self, name) for name in MarketGood.__struct_fields__}
        return MarketOffer(
            **{**common, "stock": stock},
            gpu_count=self.gpus,
            allocatable={"pods": "110", **self.allocatable, self.gpu_resource: str(self.gpus)},
            minimum_seconds=self.minimum,
            increment_seconds=self.increment,
            boot_seconds=round(self.boot + self.driver),
        )


class Rented:
    """One machine or container, from its order on."""

    def __init__(self, instance_id: str, market: str, sku: Sku, order: MarketOrder) -> None:
        self.id: Final = instance_id
        self.provider_id: Final = f"simulated://{market}/{instance_id}"
        self.sku: Final = sku
        self.order: Final = order
        self.log: Final[list[MarketLogLine]] = []
        self.phase = InstancePhase.STARTING
        self.reclaim_at: datetime | None = None
        #: When it disappears from listings.
        self.gone_at: datetime | None = None
        #: The market does not tell when it ended.
        self.traceless = False
        tariff = Tariff(hourly_price=Decimal(sku.hourly_price), minimum=sku.minimum, increment=sku.increment)
        self.line = BillLine(instance=instance_id, owner=order.owner, tariff=tariff, created=now())
        self.exit_code: int | None = None
        self._message: str | None = None
        self._timers: list[asyncio.TimerHandle] = []

    @property
    def node_name(self) -> str | None:
        return self.order.node.name if self.order.node is not None else None

    def listed_at(self, moment: datetime) -> bool:
        return self.line.created <= moment and (self.gone_at is None or moment < self.gone_at)

    def shown(self) -> MarketInstance:
        return MarketInstance(
            id=self.id,
            phase=self.phase,
            cluster=self.order.cluster,
            owner=self.order.owner,
            hourly_price=str(self.line.tariff.hourly_price),
            created=self.line.created,
            delivers=self.sku.delivers,
            node_name=self.node_name,
            provider_id=self.provider_id if self.sku.delivers.has_node else None,
            exit_code=self.exit_code,
            message=self._message,
            reclaim_at=self.reclaim_at,
        )

    def later(self, seconds: float, step: Callable[[], None]) -> None:
        self._timers.append(asyncio.get_running_loop().call_later(seconds, step))

    def cancel(self) -> None:
        """Cancels what would happen later."""
        for timer in self._timers:
            timer.cancel()
        self._timers.clear()

    def enters(self, phase: InstancePhase, message: str | None = None) -> None:
        self.phase, self._message = phase, message

    def stop_billing(self) -> None:
        if self.line.ended is None:
            self.line = msgspec.structs.replace(self.line, ended=now())

    # Containers.

    def runs_container(self) -> None:
        self.enters(InstancePhase.RUNNING)
        self._say("started")
        if (seconds := self._run_seconds()) is not None:
            self.later(seconds, self._exits)

    def _exits(self) -> None:
        self.exit_code = int(self._env(EXIT_CODE) or "0")
        self.enters(InstancePhase.FINISHED)
        self._say(f"exited with {self.exit_code}")

    def _run_seconds(self) -> float | None:
        text = self._env(RUN_TIME)
        try:
            return None if text is None else duration(text).total_seconds()
        except NotADuration as error:
            raise ValueError(f"{RUN_TIME}: {error}") from None

    def _env(self, name: str) -> str | None:
        return self.order.container.env.get(name) if self.order.container is not None else None

    def _say(self, text: str) -> None:
        self.log.append(MarketLogLine(at=now(), text=text))


class RentedNodes(Protocol):
    """The machines' kubelets. `market_nodes.EmbeddedKubelets` implements it for the embedded cluster."""

    def boot(self, rented: Rented, *, gpus_appear: bool) -> None:
        """The machine has booted: its kubelet joins the cluster."""
        ...

    def stop(self, rented: Rented) -> None:
        """The machine is off: its kubelet is dead. Safe to repeat, and before `boot`."""
        ...
