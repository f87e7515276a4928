"""The two API servers that this suite runs on, each as something to open around one test."""

import asyncio
import contextlib
import secrets
from collections.abc import AsyncIterator

from forebay.net.aiohttp_transport import AiohttpTransport
from forebay.net.in_process import InProcess
from forebay.net.tls import TlsOptions
from tests.contract.kube.speaking import Api, Refused
from tests.rig import Rig


@contextlib.asynccontextmanager
async def real(rig: Rig) -> AsyncIterator[Api]:
    authority, certificate, key = (file.read_bytes() for file in (rig.ca_file, *rig.client_certificate))
    tls = TlsOptions(authority_data=authority, certificate_data=certificate, key_data=key)
    transport = AiohttpTransport(tls=tls)

    async def forget_history() -> None:
        await asyncio.to_thread(rig.compact)

    api = Api(transport, rig.url, f"t-{secrets.token_hex(4)}", "real", forget_history)
    try:
        async with _namespace(api):
            # A controller furnishes it: pods are refused until the account is there, and watches of ConfigMaps would
            # see the certificate come at any time.
            await api("serviceaccounts").until("default", lambda seen: seen is not None)
            await api("configmaps").until("kube-root-ca.crt", lambda seen: seen is not None)
            yield api
    finally:
        await transport.close()


@contextlib.asynccontextmanager
async def embedded() -> AsyncIterator[Api]:
    """With the controllers that a control plane has, and without what would play with the pods of the stories."""
    from forebay.embedded.server import EmbeddedCluster

    async with EmbeddedCluster(without={"scheduler", "kubelet"}) as cluster:
        transport = InProcess(cluster.handler)

        async def forget_history() -> None:
            cluster.store.compact()

        api = Api(transport, "http://embedded", "story", "embedded", forget_history)
        try:
            async with _namespace(api):
                yield api
        finally:
            await transport.close()


@contextlib.asynccontextmanager
async def _namespace(api: Api) -> AsyncIterator[None]:
    name = api.namespace
    await api.cluster("namespaces").create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    try:
        yield
    finally:
        with contextlib.suppress(Refused):
            await api.cluster("namespaces").delete(name)
