"""Pods of DaemonSets that tolerate every taint: one of each is meant for the virtual node, where nothing runs for it.

kube-scheduler finds no room for it there and would only say "Too many pods", for as long as its DaemonSet exists. Bound
to the node, its status says what is so.
"""

from typing import Final

import structlog

from forebay.api.names import VIRTUAL_NODE
from forebay.engine.turns import each_in_turn
from forebay.engine.views import Views
from forebay.engine.virtual_node.pod_containers import WHOLE_PODS
from forebay.kube.client import Client
from forebay.kube.errors import Conflict, KubeError, NotFound
from forebay.kube.pod_indexes import DAEMONS_TO_COME
from forebay.model.workloads import Pod
from forebay.net.transport import TransportError
from forebay.offload.binding import plain_binding

log = structlog.get_logger(__name__)

_MOST_AT_ONCE: Final = 8


class DaemonPods:
    """Binds such pods to the virtual node."""

    def __init__(self, client: Client, views: Views) -> None:
        self._client = client
        self._views = views

    async def sync(self) -> None:
        await each_in_turn(self._bind, self._views.pods.by(DAEMONS_TO_COME, VIRTUAL_NODE), _MOST_AT_ONCE)

    async def _bind(self, pod: Pod) -> None:
        body = plain_binding(pod.namespace, pod.name, pod.uid)
        try:
            await self._client.post_subresource(WHOLE_PODS, pod.name, pod.namespace, "binding", body)
        except (NotFound, Conflict):
            return  # gone, or bound, or another pod by now: the informer will show it
        except (KubeError, TransportError) as error:
            log.warning("pod of a daemonset not bound", pod=f"{pod.namespace}/{pod.name}", error=str(error))
