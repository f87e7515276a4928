"""A machine joins a real cluster: with its own token, under its own name, and in no other way."""

import asyncio
import base64
import http.client
import json
import secrets
import ssl
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta

import pytest

from forebay.api.gpu_instance import GPUInstance, GPUInstanceSpec, GPUInstanceStatus, InstanceState
from forebay.api.instance_order import PlannedNode
from forebay.api.meta import ObjectMeta
from forebay.api.names import OPERATOR_NAME, OPERATOR_NAMESPACE
from forebay.install.joining import join_manifests
from forebay.install.operator_policies import WRITES_POLICY, operator_account, operator_policies
from forebay.install.roles import rbac_manifests
from forebay.join.base import JoinError
from forebay.join.bootstrap_tokens import BootstrapTokens
from forebay.kube.client import Client
from forebay.kube.errors import Forbidden
from forebay.kube.secrets import SECRETS
from forebay.kube.signing_requests import SIGNING_REQUESTS, approve
from forebay.lifecycle.node_certificates import ApproveCertificate, ReportMisuse, certificate_decisions
from forebay.model.sources import Delivery
from forebay.net.aiohttp_transport import AiohttpTransport
from forebay.net.redaction import Redactor
from forebay.net.tls import TlsOptions
from forebay.net.transport import Request
from tests.cluster.operators import until
from tests.cluster.worlds import create
from tests.kubelets import key_pem, new_key, pkcs10, signing_request

pytestmark = pytest.mark.real_time
CSRS = "/apis/certificates.k8s.io/v1/certificatesigningrequests"
NODES = "/api/v1/nodes"


class Machine:
    """What a stranger with a token, or a certificate, can do over the network."""

    def __init__(self, rig, *, token=None, certificate=None):
        self._rig, self._token, self._certificate = rig, token, certificate

    def ask(self, method, path, body=None):
        host, port = self._rig.url.removeprefix("https://").split(":")
        context = ssl.create_default_context(cafile=str(self._rig.ca_file))
        if self._certificate is not None:
            context.load_cert_chain(*self._certificate)
        headers = {"Content-Type": "application/json"}
        if self._token is not None:
            headers["Authorization"] = f"Bearer {self._token}"
        connection = http.client.HTTPSConnection(host, int(port), timeout=30, context=context)
        try:
            connection.request(method, path, None if body is None else json.dumps(body), headers)
            answer = connection.getresponse()
            return answer.status, json.loads(answer.read() or "{}")
        finally:
            connection.close()


class Authorized:
    """A transport that shows the token of a service account."""

    def __init__(self, inner, token):
        self._inner, self._token = inner, token

    async def request(self, request: Request):
        headers = request.headers.with_({"Authorization": f"Bearer {self._token}"})
        return await self._inner.request(Request(**{**_fields(request), "headers": headers}))

    async def close(self):
        await self._inner.close()


def _fields(request):
    return {name: getattr(request, name) for name in request.__struct_fields__}


class Joining:
    """The operator's part, with the permissions that it is granted and no others."""

    def __init__(self, rig, client):
        self.rig, self.client = rig, client
        self.name = f"gpu-{secrets.token_hex(3)}"
        self.redactor = Redactor()
        self.tokens = BootstrapTokens(client, self.redactor, ttl=timedelta(minutes=10), clock=lambda: datetime.now(UTC))
        blank = GPUInstance(
            metadata=ObjectMeta(name=self.name, uid=secrets.token_hex(8)),
            spec=GPUInstanceSpec(provider="simulated", delivers=Delivery.NODE, node=PlannedNode(name=self.name)),
        )
        self.planned = self.tokens.planned(blank, 1)
        status = GPUInstanceStatus(state=InstanceState.LAUNCHED, attempt=1, secondary_resources=(self.planned,))
        self.record = GPUInstance(metadata=blank.metadata, spec=blank.spec, status=status)

    async def token(self):
        """A new token, once the API server has heard of it: a kubelet tries until then, too."""
        made = await self.tokens.make(self.record, self.planned)
        machine = Machine(self.rig, token=made.values["BootstrapToken"])

        async def known():
            return (await asyncio.to_thread(machine.ask, "GET", "/version"))[0] != 401

        await until(known, "the API server to know the token")
        return made.values["BootstrapToken"]

    async def reconcile(self):
        """What a tick decides about the requests that there are; approvals are carried out."""
        page = await self.client.list_all(
            SIGNING_REQUESTS, fields="spec.signerName=kubernetes.io/kube-apiserver-client-kubelet"
        )
        decisions = certificate_decisions([self.record], page.items, {}, datetime.now(UTC))
        for each in decisions:
            if isinstance(each, ApproveCertificate):
                await approve(self.client, each.request, each.reason, each.sentence)
        return decisions

    async def issued(self, request, folder, key):
        """The certificate, in files, once the controller manager has signed it."""

        async def seen():
            found = await asyncio.to_thread(self.rig.call, "GET", f"{CSRS}/{request}")
            return found.get("status", {}).get("certificate")

        certificate = base64.b64decode(await until(seen, "a signed certificate"))
        files = folder / f"{request}.crt", folder / f"{request}.key"
        files[0].write_bytes(certificate)
        files[1].write_bytes(key_pem(key))
        return files

    def signed(self, request):
        return "certificate" in self.rig.call("GET", f"{CSRS}/{request}").get("status", {})


@asynccontextmanager
async def operator_of(rig):
    # The policy about this account alone: the others would hold for the operators of other stories, too.
    writes = [each for each in operator_policies(operator_account()) if WRITES_POLICY in each["metadata"]["name"]]
    for manifest in (*rbac_manifests(), *join_manifests(), *writes):
        create(rig, manifest)
    token = rig.token_for(f"{OPERATOR_NAMESPACE}/{OPERATOR_NAME}")
    transport = AiohttpTransport(tls=TlsOptions(authority_data=rig.ca_file.read_bytes()))
    client = Client(Authorized(transport, token), rig.url)
    try:
        yield Joining(rig, client)
    finally:
        await client.close()


def asked(machine, of, key, **fields):
    """The name of a new request, or the status with which it was refused."""
    name = f"csr-{secrets.token_hex(4)}"
    status, _ = machine.ask("POST", CSRS, signing_request(name, pkcs10(of, key, **fields)))
    return name if status == 201 else status


async def test_the_right_machine_joins_under_its_name(rig, tmp_path):
    async with operator_of(rig) as joining:
        key = new_key()
        machine = Machine(rig, token=await joining.token())

        request = asked(machine, joining.name, key)
        (approval,) = await joining.reconcile()
        assert isinstance(approval, ApproveCertificate)
        kubelet = Machine(rig, certificate=await joining.issued(request, tmp_path, key))
        status, node = kubelet.ask("POST", NODES, {"metadata": {"name": joining.name}})

        assert status == 201, node
        assert kubelet.ask("POST", NODES, {"metadata": {"name": f"{joining.name}-other"}})[0] == 403
        rig.call("DELETE", f"{NODES}/{joining.name}")


async def test_a_token_gets_no_certificate_of_another_name(rig):
    async with operator_of(rig) as joining:
        machine = Machine(rig, token=await joining.token())

        request = asked(machine, "control-plane-1", new_key())
        (report,) = await joining.reconcile()

        assert isinstance(report, ReportMisuse)
        assert f"Request {request} is for the certificate of node control-plane-1" in report.sentence
        admin = asked(machine, joining.name, new_key(), user="system:admin", organizations=("system:masters",))
        assert not any(isinstance(each, ApproveCertificate) for each in await joining.reconcile())
        # The API server itself refuses what no kubelet may ask for; were it to take it, nobody would sign it.
        assert admin in {403, 422} or not joining.signed(admin)
        assert not joining.signed(request)


async def test_a_second_machine_with_the_same_token_is_told_apart(rig, tmp_path):
    async with operator_of(rig) as joining:
        machine, key = Machine(rig, token=await joining.token()), new_key()
        first = asked(machine, joining.name, key)
        await joining.reconcile()
        await joining.issued(first, tmp_path, key)

        second = asked(machine, joining.name, new_key())
        (report,) = await joining.reconcile()

        assert isinstance(report, ReportMisuse)
        assert "from a second machine" in report.sentence
        assert not joining.signed(second)


async def test_a_revoked_token_is_refused(rig):
    async with operator_of(rig) as joining:
        machine = Machine(rig, token=await joining.token())
        assert isinstance(asked(machine, joining.name, new_key()), str)

        await joining.tokens.revoke(joining.planned)
        await joining.tokens.revoke(joining.planned)

        async def refused():
            return await asyncio.to_thread(asked, machine, joining.name, new_key()) == 401

        await until(refused, "a revoked token to be refused")


async def test_a_token_that_was_made_before_a_crash_cannot_be_made_again(rig):
    async with operator_of(rig) as joining:
        first = await joining.token()
        with pytest.raises(JoinError, match="already exists"):
            await joining.token()
        assert first.partition(".")[2] not in joining.redactor.text(f"the token is {first}")
        await joining.tokens.revoke(joining.planned)


async def test_the_operator_cannot_read_the_secrets_of_kube_system(rig):
    async with operator_of(rig) as joining:
        await joining.token()
        with pytest.raises(Forbidden):
            await joining.client.get(SECRETS, f"bootstrap-token-{joining.planned.name}", "kube-system")
        await joining.tokens.revoke(joining.planned)


async def test_the_operator_deletes_no_secret_of_others(rig):
    async with operator_of(rig) as joining:
        name = f"mine-{secrets.token_hex(4)}"
        rig.call("POST", "/api/v1/namespaces/kube-system/secrets", {"metadata": {"name": name}})

        async def refused():
            # A policy that was just created holds a moment later.
            try:
                await joining.client.delete(SECRETS, name, "kube-system")
            except Forbidden as error:
                return "bootstrap tokens" in str(error)
            rig.call("POST", "/api/v1/namespaces/kube-system/secrets", {"metadata": {"name": name}})
            return False

        await until(refused, "the policy to refuse it")
        rig.call("DELETE", f"/api/v1/namespaces/kube-system/secrets/{name}")


async def test_the_token_itself_may_do_nothing_else(rig):
    async with operator_of(rig) as joining:
        machine = Machine(rig, token=await joining.token())
        assert machine.ask("GET", "/api/v1/namespaces/kube-system/secrets")[0] == 403
        assert machine.ask("POST", NODES, {"metadata": {"name": joining.name}})[0] == 403
        await joining.tokens.revoke(joining.planned)
