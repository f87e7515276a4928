"""Credentials with which private images are pulled: made once for all containers of a Secret, gone with the last."""

import asyncio
import base64
import json
from contextlib import asynccontextmanager

import pytest
from msgspec.structs import replace

from forebay.api.gpu_instance import GPUInstanceStatus, InstanceState, SecondaryResource
from forebay.api.instance_order import ContainerRecord
from forebay.api.parts import PodRef
from forebay.embedded.api.kinds import SECRET_KIND
from forebay.engine.apply.container_specs import ContainerNotReady
from forebay.engine.apply.registry_credentials import RegistryCredentials
from forebay.join.base import JoinError
from forebay.kube import writes
from forebay.kube.own_kinds import GPU_INSTANCES
from forebay.model.sources import Delivery
from forebay.net.redaction import Redactor
from forebay.providers.base import BadCredentials, OutcomeUnknown, Unavailable
from tests.engine.views_world import watched_cluster
from tests.net.faults import Answer
from tests.unit.demand.builders import record

PASSWORD = "planted-password-81"


class Cloud:
    """A provider that keeps registry credentials, by id."""

    def __init__(self):
        self.kept, self.made, self.deleted, self.logins = {}, 0, [], []
        #: Errors of the next calls to create, raised before or after; a hanging provider; ids that stay when deleted.
        self.before, self.after, self.hangs, self.sticky = [], [], False, set()

    async def registry_credentials(self):
        if self.hangs:
            await asyncio.sleep(10**6)
        found = {}
        for each, name in self.kept.items():
            found.setdefault(name, []).append(each)
        return found

    async def create_registry_credential(self, name, username, password):
        if self.before:
            raise self.before.pop()
        self.made += 1
        self.kept[f"id-{self.made}"] = name
        self.logins.append((username, password.reveal()))
        if self.after:
            raise self.after.pop()
        return f"id-{self.made}"

    async def delete_registry_credential(self, credential_id):
        self.deleted.append(credential_id)
        if credential_id not in self.sticky:
            del self.kept[credential_id]


class World:
    def __init__(self, watched):
        self.watched, self.cloud, self.redactor = watched, Cloud(), Redactor()
        self.credentials = RegistryCredentials(
            watched.client, watched.views, lambda _: self.cloud, self.redactor, "here"
        )

    def secret(self, name="registry", registry="registry.example", namespace="default"):
        auth = base64.b64encode(f"robot:{PASSWORD}".encode()).decode()
        config = json.dumps({"auths": {registry: {"auth": auth}}})
        self.watched.store.create(
            SECRET_KIND,
            {
                "metadata": {"name": name, "namespace": namespace},
                "type": "kubernetes.io/dockerconfigjson",
                "data": {".dockerconfigjson": base64.b64encode(config.encode()).decode()},
            },
        )

    async def plan(self, of):
        return await self.credentials.plan(of)

    async def refusal(self, of):
        with pytest.raises(ContainerNotReady) as caught:
            await self.credentials.plan(of)
        return str(caught.value), caught.value.passing

    async def failure(self, planned):
        with pytest.raises(ContainerNotReady) as caught:
            await self.credentials.make(container(), planned)
        return str(caught.value), caught.value.passing

    async def recorded(self, name, resource, state=InstanceState.RUNNING):
        """A record in the cluster that notes the credential; as the views have it."""
        made = await self.watched.client.create(GPU_INSTANCES, {"metadata": {"name": name}, "spec": container().spec})
        return await self.write(made, GPUInstanceStatus(state=state, secondary_resources=(resource,)))

    async def write(self, of, status):
        patch = writes.merge_patch({"metadata": {"uid": of.uid}, "status": status})
        await self.watched.client.patch(GPU_INSTANCES, of.metadata.name, patch, subresource="status")
        await asyncio.sleep(1)
        return self.watched.views.instances.get(("", of.metadata.name))


@asynccontextmanager
async def world():
    async with watched_cluster() as watched:
        yield World(watched)


def container(image="registry.example/team/work:1", secrets=("registry",), registry_auth=None):
    made = record("gpu-1", delivers=Delivery.CONTAINER)
    wanted = ContainerRecord(image=image, node_name="n", pull_secrets=secrets, registry_auth=registry_auth)
    pods = (PodRef(namespace="default", name="train", uid="u"),)
    return replace(made, spec=replace(made.spec, container=wanted, pods=pods, provider="runpod"))


async def test_a_credential_is_named_by_its_secret_and_its_password_is_never_shown():
    async with world() as it:
        it.secret()
        first, second = await it.plan(container()), await it.plan(container("registry.example/other:2"))
        assert first.resource == second.resource
        assert (first.login.username, first.login.registry) == ("robot", "registry.example")
        assert PASSWORD not in it.redactor.text(f"It is {PASSWORD}.")
        it.watched.store.delete(SECRET_KIND, "default", "registry")
        it.secret()
        assert (await it.plan(container())).resource != first.resource, "a Secret of another version"


async def test_no_credential_is_planned_where_none_is_needed_or_the_job_names_one():
    async with world() as it:
        it.secret()
        assert await it.plan(container("docker.io/work:1")) is None
        assert await it.plan(container(secrets=())) is None
        assert await it.plan(container(secrets=("absent",))) is None
        assert await it.plan(container(registry_auth="own")) is None
        assert await it.plan(record(delivers=Delivery.NODE)) is None


async def test_a_secret_that_may_not_or_cannot_be_read_now_is_told():
    async with world() as it:
        it.secret()
        forbidden = b'{"kind": "Status", "apiVersion": "v1", "reason": "Forbidden", "code": 403, "message": "no"}'
        it.watched.faults[:] = [lambda _: Answer(403, body=forbidden)]
        told, passing = await it.refusal(container())
        assert "Forebay may not read Secret default/registry, with which the image is pulled: grant its" in told
        assert not passing, "somebody has to mend it"
        it.watched.faults[:] = [lambda _: Answer(503)]
        told, passing = await it.refusal(container())
        assert told.startswith("Secret default/registry could not be read: ")
        assert passing


async def test_a_credential_is_made_once_and_found_by_its_name_after_a_lost_answer():
    async with world() as it:
        it.secret()
        planned = await it.plan(container())
        made = await it.credentials.make(container(), planned)
        assert await it.credentials.make(container(), planned) == made
        assert it.cloud.logins == [("robot", PASSWORD)]
        it.cloud.kept.clear()
        it.cloud.after = [OutcomeUnknown("lost")]
        assert await it.credentials.make(container(), planned) == "id-2"
        assert it.cloud.made == 2


async def test_what_keeps_a_credential_from_being_made_is_told_and_whether_it_will_pass():
    async with world() as it:
        it.secret()
        planned = await it.plan(container())
        it.cloud.before = [Unavailable("It is down.")]
        told = "The credentials with which the image is pulled were not stored: "
        assert await it.failure(planned) == (f"{told}It is down.", True)
        it.cloud.before = [BadCredentials("The key is wrong.")]
        assert await it.failure(planned) == (f"{told}The key is wrong.", False)
        it.cloud.hangs = True
        assert await it.failure(planned) == (f"{told}no answer within 30 s", True)
        it.cloud = None
        assert await it.failure(planned) == (
            "runpod keeps no registry credentials, and the pod has imagePullSecrets.",
            False,
        )


async def test_a_credential_goes_with_the_last_container_that_notes_it():
    async with world() as it:
        it.secret()
        planned = await it.plan(container())
        it.cloud.kept = {"a": planned.resource.name, "b": planned.resource.name, "c": "of-somebody"}
        own = await it.recorded("own", planned.resource)
        other = await it.recorded("other", planned.resource)
        await it.credentials.revoke(own, planned.resource)
        assert it.cloud.deleted == []
        gone = replace(other.status, state=InstanceState.GONE)
        await it.write(other, gone)
        await it.recorded("third", SecondaryResource(kind=planned.resource.kind, name="forebay-another"))
        await it.watched.client.create(GPU_INSTANCES, {"metadata": {"name": "ordered"}, "spec": container().spec})
        await asyncio.sleep(1)
        await it.credentials.revoke(own, planned.resource)
        assert sorted(it.cloud.deleted) == ["a", "b"], "a create whose answer was lost may have made two"
        assert it.cloud.kept == {"c": "of-somebody"}


async def test_a_credential_that_stays_is_deleted_again_later():
    async with world() as it:
        resource = SecondaryResource(kind="RegistryCredential", name="forebay-x")
        own = await it.recorded("own", resource)
        it.cloud.kept, it.cloud.sticky = {"a": "forebay-x"}, {"a"}
        with pytest.raises(JoinError, match="still listed"):
            await it.credentials.revoke(own, resource)
        it.cloud.hangs = True
        with pytest.raises(JoinError, match="no answer within 30 s"):
            await it.credentials.revoke(own, resource)
        it.cloud = None
        with pytest.raises(JoinError, match="runpod is not configured any more: put it back into its class"):
            await it.credentials.revoke(own, resource)
