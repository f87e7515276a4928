"""The two API servers that this suite runs on, each as a context manager around one test."""

import asyncio
import contextlib
import secrets
from collections.abc import AsyncIterator

from forebay.net.aiohttp_transport import AiohttpTransport
from forebay.net.in_process import InProcess
from forebay.net.tls import TlsOptions
from tests.contract.kube.api_client import Api, Refused
from tests.rig import Rig


@contextlib.asynccontextmanager
async def real(rig: Rig) -> AsyncIterator[Api]:
    authority, certificate, key = (file.read_bytes() for file in (rig.ca_file, *rig.client_certificate))
    tls = TlsOptions(authority_data=authority, certificate_data=certificate, key_data=key)
    transport = AiohttpTransport(tls=tls)

    async def compact() -> None:
        await asyncio.to_thread(rig.compact)

    api = Api(transport, rig.url, f"t-{secrets.token_hex(4)}", "real", compact)
    try:
        async with _namespace(api):
            # Controllers create both: pods are refused without the service account, and a watch of ConfigMaps would
            # see the certificate appear at any time.
            await api("serviceaccounts").until("default", lambda seen: seen is not None)
            await api("configmaps").until("kube-root-ca.crt", lambda seen: seen is not None)
            yield api
    finally:
        await transport.close()


@contextlib.asynccontextmanager
async def embedded() -> AsyncIterator[Api]:
    """The embedded cluster without scheduler and kubelet, which would change the pods of the tests."""
    from forebay.embedded.server import EmbeddedCluster

    async with EmbeddedCluster(without={"scheduler", "kubelet"}) as cluster:
        transport = InProcess(cluster.handler)

        async def compact() -> None:
            cluster.store.compact()

        api = Api(transport, "http://embedded", "story", "embedded", compact)
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
