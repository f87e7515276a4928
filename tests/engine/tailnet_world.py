"""A tailnet in the world of rented machines: Tailscale's conformance server, and machines that enter by their keys."""

import re

from tests.contract.tailnets.server import CLIENT, TailscaleServer
from tests.engine.market_world import secret

KEY = re.compile(r"tskey-auth-[-\w]+")


def tailnet_of(cloud, server=None):
    """Tailscale's API in the world of this cloud."""
    server, others = server or TailscaleServer(), cloud.answer

    async def answer(request):
        return await (server.answer if "//api.tailscale.com/" in request.url else others)(request)

    cloud.answer = answer
    secret(cloud, "tailscale-oauth", **{"client-id": CLIENT[0], "client-secret": CLIENT[1]})
    return server


class TailnetMachines:
    """Machines that enter the tailnet first, and become nodes only then."""

    def __init__(self, kubelets, tailnet):
        self._kubelets = kubelets
        self._tailnet = tailnet

    def boot(self, rented, *, gpus_appear):
        key = KEY.search(rented.order.boot or "")
        if key is not None and self._tailnet.joins(key[0], rented.node_name) in self._tailnet.devices:
            self._kubelets.boot(rented, gpus_appear=gpus_appear)

    def stop(self, rented):
        self._kubelets.stop(rented)
