"""The operator with exactly the roles that it prints, on an API server that keeps a record."""

import asyncio
import subprocess
import sys

import pytest
import yaml

from forebay.engine.permissions import AT_HOME, EVERYWHERE, NAME, NAMESPACE
from tests.cluster import audit
from tests.cluster.operators import OperatorProcess, until
from tests.cluster.worlds import create, install_definitions, world
from tests.rig import Rig, Tier
from tests.rig.plugin import require

WATCHED = {"nodes", "pods", "gpunodeclasses", "gpunodepools"}
ACCOUNT = f"system:serviceaccount:{NAMESPACE}:{NAME}"


@pytest.fixture
def old_rig():
    """A server without WatchList, as older ones are: there, `list` is needed beside `watch`."""
    require(Tier.API)
    with Rig.start(Tier.API, audit=True, api_server_flags=["--feature-gates=WatchList=false"]) as rig:
        install_definitions(rig)
        yield rig


def grants() -> set[tuple[str, str, str, str]]:
    """(scope, group, resource, verb), one for each thing that the roles allow."""
    return {
        (scope, each.group, resource, verb)
        for scope, permissions in (("everywhere", EVERYWHERE), ("at home", AT_HOME))
        for each in permissions
        for resource in each.resources
        for verb in each.verbs
    }


def use(entry: audit.Entry) -> tuple[str, str, str, str]:
    """What a request needs. What is asked of another namespace, or of all, must be granted everywhere."""
    scope = "at home" if entry.namespace == NAMESPACE else "everywhere"
    return (scope, entry.group, entry.resource, entry.verb)


def operator_of(rig: Rig) -> OperatorProcess:
    """As in its pod: with the token of its account, and nothing else."""
    printed = subprocess.run(
        [sys.executable, "-m", "forebay", "manifests", "rbac"], check=True, capture_output=True, text=True
    )
    for manifest in yaml.safe_load_all(printed.stdout):
        create(rig, manifest)
    kubeconfig = rig.kubeconfig_for("replaced")
    document = yaml.safe_load(kubeconfig.read_text())
    document["users"][0]["user"] = {"token": rig.token_for(f"{NAMESPACE}/{NAME}")}
    kubeconfig.write_text(yaml.safe_dump(document))
    return OperatorProcess(rig, "operator", kubeconfig, NAMESPACE)


async def do_everything(rig: Rig, operator: OperatorProcess) -> None:
    """Every reason that there is to act, once."""
    async with world(rig) as made:
        await until(operator.is_ready, "the operator is ready")
        uids = {}
        for namespace in (made.name, made.home):
            uids[namespace] = await made.create_pool("pool", namespace)
            await made.told("pool", uids[namespace], "NodeClassNotFound", namespace)
        # The second time that a class is found or lost is the same event again: a series.
        for change, reason in (
            (made.create_class, "NodeClassFound"),
            (made.delete_class, "NodeClassNotFound"),
            (made.create_class, "NodeClassFound"),
        ):
            await change()
            for namespace, uid in uids.items():
                await made.told("pool", uid, reason, namespace)
        # The series, due in half a minute, is written before it leaves; the lease is given back.
        await operator.leave()

        async def logged() -> bool:
            return {each.resource for each in audit.entries(rig.audit_log, ACCOUNT) if each.is_watch} == WATCHED

        await until(logged, "the ends of the watches are in the audit log")


@pytest.mark.real_time
@pytest.mark.timeout(300)
async def test_everything_granted_is_used_and_nothing_used_is_refused(old_rig):
    operator = operator_of(old_rig)
    operator.start()
    try:
        [failure] = await asyncio.gather(do_everything(old_rig, operator), return_exceptions=True)
    finally:
        operator.stop()

    requests = audit.entries(old_rig.audit_log, ACCOUNT)
    # Whatever else was answered (404: there is no lease yet) was allowed.
    used = {use(each) for each in requests if not each.refused}
    refused = {use(each) for each in requests if each.refused}
    nothing = {"granted and unused": set(), "refused": set()}
    # First, for a refusal is why the story failed, if it did.
    assert {"granted and unused": grants() - used, "refused": refused} == nothing
    if failure is not None:
        raise failure
