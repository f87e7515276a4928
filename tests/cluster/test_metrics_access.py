"""Metrics and dashboard on a real cluster: for tokens of users whom it lets read them, with the permissions granted."""

import aiohttp
import pytest

from forebay.api.names import OPERATOR_NAMESPACE
from forebay.install.roles import reader_roles
from tests.cluster import audit
from tests.cluster.operators import OperatorProcess, until
from tests.cluster.test_rbac import ACCOUNT, account_of, old_rig, use  # noqa: F401 (a fixture)
from tests.cluster.worlds import world
from tests.rig.control_plane import free_ports

RBAC = "/apis/rbac.authorization.k8s.io/v1"


@pytest.mark.real_time
@pytest.mark.timeout(300)
async def test_a_token_reads_metrics_if_the_cluster_lets_its_user(old_rig):  # noqa: F811 (the fixture)
    port = free_ports("metrics")["metrics"]
    secure = {"metrics-bind-address": f"127.0.0.1:{port}", "metrics-secure": "true"}
    operator = OperatorProcess(old_rig, "operator", account_of(old_rig), OPERATOR_NAMESPACE, settings=secure)
    operator.start()
    try:
        async with world(old_rig) as made, aiohttp.ClientSession() as session:
            await until(operator.is_ready, "the operator is ready")
            accounts = f"/api/v1/namespaces/{made.name}/serviceaccounts"
            tokens = {}
            for name in ("prometheus", "stranger"):
                await made.call("POST", accounts, {"metadata": {"name": name}})
                token = {"kind": "TokenRequest", "apiVersion": "authentication.k8s.io/v1", "spec": {}}
                tokens[name] = (await made.call("POST", f"{accounts}/{name}/token", token))["status"]["token"]
            for role in reader_roles():
                await made.call("POST", f"{RBAC}/clusterroles", role)
            binding = {
                "metadata": {"name": "prometheus-reads-forebay"},
                "roleRef": {
                    "apiGroup": "rbac.authorization.k8s.io",
                    "kind": "ClusterRole",
                    "name": "forebay-metrics-reader",
                },
                "subjects": [{"kind": "ServiceAccount", "name": "prometheus", "namespace": made.name}],
            }
            await made.call("POST", f"{RBAC}/clusterrolebindings", binding)

            async def ask(token):
                headers = {"Authorization": f"Bearer {token}"} if token else {}
                async with session.get(f"https://127.0.0.1:{port}/metrics", headers=headers, ssl=False) as answer:
                    return answer.status, await answer.text()

            async def admitted():
                status, text = await ask(tokens["prometheus"])
                return status == 200 and "forebay_leader" in text

            # The authorizer learns of the binding through its own watch, and a refusal is remembered for 10 s.
            await until(admitted, "Prometheus reads the metrics")
            assert (await ask(tokens["stranger"]))[0] == 403
            assert (await ask("nonsense"))[0] == 401
            assert (await ask(None))[0] == 401
    finally:
        operator.stop()
    requests = audit.entries(old_rig.audit_log, ACCOUNT)
    assert {use(each) for each in requests if each.refused} == set()
    asked = {each.resource for each in requests if each.verb == "create"}
    assert {"tokenreviews", "subjectaccessreviews"} <= asked
