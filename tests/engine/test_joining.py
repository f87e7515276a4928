"""Rented machines join: what they are told at boot, with which credentials, and what a class says that cannot work."""

import asyncio
import base64

import yaml

from forebay.embedded.api.kinds import CONFIG_MAP_KIND, NODE_KIND, SECRET_KIND
from forebay.net.transport import Response
from forebay.simulate.market_goods import Sku
from tests.engine.market_world import cloud_operator, clouds, market, secret
from tests.engine.tailnet_world import KEY, tailnet_of
from tests.joining import TAILSCALE, TALOS, talos_bundle
from tests.pki import Authority

SKU = Sku(instance_type="l40s.4x", gpus=4, gpu_type="L40S", hourly_price="2.40", region="west", boot=60, driver=10)
K3S = {"serverURL": "https://10.0.0.1:6443", "tokenSecretRef": {"name": "k3s", "key": "token"}}


async def until(true, seconds=900.0):
    for _ in range(int(seconds)):
        if true():
            return
        await asyncio.sleep(1)
    raise AssertionError("it did not happen in time")


def tokens(cloud):
    found = cloud.store.list(SECRET_KIND, "kube-system")
    return [each for each in found if each["metadata"]["name"].startswith("bootstrap-token-")]


def script_of(machine):
    """The script in the user data of the machine."""
    (file,) = yaml.safe_load(machine.order.boot)["write_files"]
    return file["content"]


def written(text, path):
    return text.split(f"cat > {path} << 'FOREBAY_END'\n")[1].split("FOREBAY_END\n")[0]


def message(cloud):
    return next(iter(cloud.world.records().values()))["status"]["message"]


def condition(record, kind):
    return next((each for each in record["status"].get("conditions", ()) if each["type"] == kind), None)


async def test_a_machine_joins_by_kubeadm_with_its_own_token_and_is_known_by_its_provider_id():
    async with clouds(market("alpha", SKU)) as cloud:
        published = cloud.store.find(CONFIG_MAP_KIND, "kube-system", "kube-root-ca.crt")
        ca = {"ca.crt": Authority().certificate.decode()}
        cloud.store.update(CONFIG_MAP_KIND, {**published, "data": ca})
        cloud.pool("alpha", kubeadmConfig={"controlPlaneEndpoint": "10.0.0.1:6443", "tokenTTL": "30m"})
        (alpha,) = cloud.markets.values()
        async with cloud_operator(cloud):
            await asyncio.sleep(10)
            cloud.world.pod("one", 4)
            await until(lambda: alpha.running)
            (token,), (machine,) = tokens(cloud), alpha.instances.values()
            data = {key: base64.b64decode(value).decode() for key, value in token["data"].items()}
            join = yaml.safe_load(written(script_of(machine), "/run/forebay/join.yaml"))
            own = f"{data['token-id']}.{data['token-secret']}"
            assert join["discovery"]["bootstrapToken"]["token"] == own
            assert data["usage-bootstrap-signing"] == "true", "kubeadm proves the cluster by it"
            assert len(join["discovery"]["bootstrapToken"]["caCertHashes"]) == 1
            await until(lambda: cloud.world.phase("one") == "Running")
            (record,) = cloud.world.records().values()
            node = cloud.store.find(NODE_KIND, None, machine.node_name)
            assert node["spec"]["providerID"] == record["status"]["providerID"]
            assert node["spec"]["providerID"] == f"forebay://simulated/{record['metadata']['uid']}"
            assert tokens(cloud) == []
            await until(lambda: not cloud.running and set(cloud.world.states().values()) <= {"Gone"})
        assert cloud.ledger() == cloud.bill() > 0


async def test_a_k3s_agent_has_the_class_s_token_where_the_server_is_not_k3s_and_the_record_says_so():
    async with clouds(market("alpha", SKU)) as cloud:
        secret(cloud, "k3s", token="K10cafe::node:shared\n")
        cloud.pool("alpha", k3sConfig={**K3S, "version": "v1.36.4+k3s1"})
        (alpha,) = cloud.markets.values()
        async with cloud_operator(cloud):
            await asyncio.sleep(10)
            cloud.world.pod("one", 4)
            await until(lambda: alpha.running)
            (machine,) = alpha.instances.values()
            config = yaml.safe_load(written(script_of(machine), "/etc/rancher/k3s/config.yaml"))
            assert config["token"] == "K10cafe::node:shared"
            assert tokens(cloud) == []
            (record,) = cloud.world.records().values()
            said = condition(record, "OwnJoinToken")
            assert (said["status"], said["reason"]) == ("False", "SharedJoinToken")
            assert "joins with the agent token of its class, which every machine of the class shares" in said["message"]
            await until(lambda: cloud.world.phase("one") == "Running")
            await until(lambda: not cloud.running and set(cloud.world.states().values()) <= {"Gone"})


async def test_a_class_without_a_k3s_version_beside_another_kubernetes_rents_nothing_and_says_what_to_set():
    async with clouds(market("alpha", SKU)) as cloud:
        secret(cloud, "k3s", token="shared")
        cloud.pool("alpha", k3sConfig=K3S)
        (alpha,) = cloud.markets.values()
        async with cloud_operator(cloud):
            await asyncio.sleep(10)
            cloud.world.pod("one", 4)
            await until(lambda: "Gone" in cloud.world.states().values())
            assert "set k3sConfig.version to the version of k3s to install" in message(cloud)
            assert alpha.instances == {}


async def test_a_missing_agent_token_rents_nothing_and_names_the_secret():
    async with clouds(market("alpha", SKU)) as cloud:
        cloud.pool("alpha", k3sConfig={**K3S, "version": "v1.36.4+k3s1"})
        (alpha,) = cloud.markets.values()
        async with cloud_operator(cloud):
            await asyncio.sleep(10)
            cloud.world.pod("one", 4)
            await until(lambda: "Gone" in cloud.world.states().values())
            assert "Secret kube-system/k3s does not exist: create it" in message(cloud)
            assert alpha.instances == {}
            assert tokens(cloud) == []


async def test_a_secret_that_is_corrected_ends_the_cooldown_of_a_failed_join_within_seconds():
    async with clouds(market("alpha", SKU)) as cloud:
        cloud.pool("alpha", k3sConfig={**K3S, "version": "v1.36.4+k3s1"})
        (alpha,) = cloud.markets.values()
        async with cloud_operator(cloud):
            await asyncio.sleep(10)
            cloud.world.pod("one", 4)
            await until(lambda: "Gone" in cloud.world.states().values())
            await asyncio.sleep(60)
            assert alpha.instances == {}, "the whole class cools down for five minutes"
            secret(cloud, "k3s", token="K10cafe::node:shared")
            await until(lambda: alpha.running, 20)


async def test_a_class_that_is_corrected_ends_the_cooldown_of_a_failed_join():
    async with clouds(market("alpha", SKU)) as cloud:
        secret(cloud, "k3s", token="shared")
        cloud.pool("alpha", k3sConfig=K3S)
        (alpha,) = cloud.markets.values()
        async with cloud_operator(cloud):
            await asyncio.sleep(10)
            cloud.world.pod("one", 4)
            await until(lambda: "Gone" in cloud.world.states().values())
            kind = cloud.store.kinds.named("forebay.dev/v1alpha1", "GPUNodeClass")
            version = {**K3S, "version": "v1.36.4+k3s1"}
            cloud.world.change(kind, "alpha", lambda each: each["spec"].update(k3sConfig=version))
            await until(lambda: alpha.running, 20)


async def test_a_template_that_cannot_be_filled_in_is_an_error_of_the_class_before_anything_is_ordered():
    async with clouds(market("alpha", SKU)) as cloud:
        cloud.pool("alpha", cloudInit={"template": "#cloud-config\n# {{.BootstrapToken}} {{.MachineToken}}\n"})
        (alpha,) = cloud.markets.values()
        async with cloud_operator(cloud):
            await asyncio.sleep(10)
            cloud.world.pod("one", 4)
            await asyncio.sleep(60)
            assert cloud.world.records() == {}
            assert alpha.instances == {}
            kind = cloud.store.kinds.named("forebay.dev/v1alpha1", "GPUNodeClass")
            (ready,) = (
                each
                for each in cloud.store.find(kind, None, "alpha")["status"]["conditions"]
                if each["type"] == "Ready"
            )
            assert ready["status"] == "False"
            assert "The template uses MachineToken, which has no value here" in ready["message"]


async def test_a_talos_machine_boots_a_config_written_from_the_cluster_s_machine_secrets():
    async with clouds(market("alpha", SKU)) as cloud:
        bundle = talos_bundle()
        secret(cloud, "talos", **{"secrets.yaml": yaml.safe_dump(bundle)})
        cloud.pool("alpha", talosConfig=TALOS)
        (alpha,) = cloud.markets.values()
        async with cloud_operator(cloud):
            await asyncio.sleep(10)
            cloud.world.pod("one", 4)
            await until(lambda: alpha.running)
            (token,), (machine,) = tokens(cloud), alpha.instances.values()
            main, hostname = yaml.safe_load_all(machine.order.boot)
            own = base64.b64decode(token["data"]["token-secret"]).decode()
            assert main["cluster"]["token"].endswith(own)
            assert main["machine"]["ca"]["crt"] == bundle["certs"]["os"]["crt"]
            assert main["machine"]["kubelet"]["image"].startswith("ghcr.io/siderolabs/kubelet:v1.")
            assert hostname["hostname"] == machine.node_name
            await until(lambda: cloud.world.phase("one") == "Running")
            assert tokens(cloud) == []
            await until(lambda: not cloud.running and set(cloud.world.states().values()) <= {"Gone"})
        assert cloud.ledger() == cloud.bill() > 0


async def test_machine_secrets_that_are_none_rent_nothing_and_name_the_secret():
    async with clouds(market("alpha", SKU)) as cloud:
        secret(cloud, "talos", **{"secrets.yaml": "cluster: {id: x, secret: s3cret}"})
        cloud.pool("alpha", talosConfig=TALOS)
        (alpha,) = cloud.markets.values()
        async with cloud_operator(cloud):
            await asyncio.sleep(10)
            cloud.world.pod("one", 4)
            await until(lambda: "Gone" in cloud.world.states().values())
            said = message(cloud)
            assert "key secrets.yaml of Secret kube-system/talos: this is not what talosctl gen secrets writes" in said
            assert "s3cret" not in said
            assert alpha.instances == {}


async def test_a_machine_enters_the_tailnet_with_its_own_key_and_nothing_of_it_is_left_there():
    async with clouds(market("alpha", SKU)) as cloud:
        server = tailnet_of(cloud)
        secret(cloud, "k3s", token="shared")
        cloud.pool("alpha", k3sConfig={**K3S, "version": "v1.36.4+k3s1"}, tailscaleConfig=TAILSCALE)
        (alpha,) = cloud.markets.values()
        async with cloud_operator(cloud):
            await asyncio.sleep(10)
            cloud.world.pod("one", 4)
            await until(lambda: alpha.running)
            (machine,) = alpha.instances.values()
            (key,) = set(KEY.findall(machine.order.boot))
            device = server.joins(key, machine.node_name)
            assert device in server.devices
            await until(lambda: cloud.world.phase("one") == "Running")
            await until(lambda: server.keys == {})
            (record,) = cloud.world.records().values()
            (tied,) = record["status"]["secondaryResources"]
            assert (tied["kind"], tied["name"], tied["id"]) == ("TailscaleDevice", machine.node_name, device)
            assert KEY.search(str(record)) is None
            await until(lambda: set(cloud.world.states().values()) <= {"Gone"} and not cloud.running)
            await until(lambda: server.devices == {})
        assert cloud.ledger() == cloud.bill() > 0


async def test_a_key_whose_creation_was_not_answered_is_revoked_and_the_next_launch_has_another():
    async with clouds(market("alpha", SKU)) as cloud:
        server = tailnet_of(cloud)
        server.fail("POST", "/tailnet/-/keys", "lost")
        secret(cloud, "k3s", token="shared")
        cloud.pool("alpha", k3sConfig={**K3S, "version": "v1.36.4+k3s1"}, tailscaleConfig=TAILSCALE)
        (alpha,) = cloud.markets.values()
        async with cloud_operator(cloud):
            await asyncio.sleep(10)
            cloud.world.pod("one", 4)
            await until(lambda: alpha.running)
            (machine,) = alpha.instances.values()
            (key,) = set(KEY.findall(machine.order.boot))
            await until(lambda: [each["key"] for each in server.keys.values()] in ([key], []))
            await until(lambda: cloud.world.phase("one") == "Running")
            await until(lambda: server.keys == {})
            assert len(alpha.instances) == 1
            await until(lambda: not cloud.running and set(cloud.world.states().values()) <= {"Gone"})


async def test_a_tailnet_that_cannot_be_asked_delays_no_termination_and_is_asked_again():
    async with clouds(market("alpha", SKU)) as cloud:
        server = tailnet_of(cloud)
        secret(cloud, "k3s", token="shared")
        cloud.pool("alpha", k3sConfig={**K3S, "version": "v1.36.4+k3s1"}, tailscaleConfig=TAILSCALE)
        (alpha,) = cloud.markets.values()
        async with cloud_operator(cloud):
            await asyncio.sleep(10)
            cloud.world.pod("one", 4)
            await until(lambda: alpha.running)
            (machine,) = alpha.instances.values()
            server.joins(next(iter(KEY.findall(machine.order.boot))), machine.node_name)
            await until(lambda: cloud.world.phase("one") == "Running")
            await until(lambda: server.keys == {})
            for _ in range(3):
                server.fail("GET", "/tailnet/-/devices", 503)
            await until(lambda: not cloud.running and set(cloud.world.states().values()) <= {"Gone"})
            assert len(server.devices) == 1
            await until(lambda: server.devices == {})
        assert cloud.ledger() == cloud.bill() > 0


async def test_a_wrong_oauth_client_rents_nothing_and_says_what_to_correct():
    async with clouds(market("alpha", SKU)) as cloud:
        tailnet_of(cloud)
        wrong = {**TAILSCALE, "oauthCredentialsSecretRef": {"name": "tailscale-oauth", "clientSecretKey": "client-id"}}
        secret(cloud, "k3s", token="shared")
        cloud.pool("alpha", k3sConfig={**K3S, "version": "v1.36.4+k3s1"}, tailscaleConfig=wrong)
        (alpha,) = cloud.markets.values()
        async with cloud_operator(cloud):
            await asyncio.sleep(10)
            cloud.world.pod("one", 4)
            await until(lambda: "Gone" in cloud.world.states().values())
            assert "the OAuth client must exist, have the scopes auth_keys and devices:core" in message(cloud)
            assert alpha.instances == {}


class OnK3s:
    """A transport to an API server that says it is k3s."""

    def __init__(self, inner):
        self._inner = inner

    async def request(self, request):
        if request.url.endswith("/version"):
            return Response(200, {"Content-Type": "application/json"}, b'{"gitVersion": "v1.36.4+k3s1"}')
        return await self._inner.request(request)

    async def close(self):
        await self._inner.close()


async def test_where_the_server_is_k3s_each_machine_has_a_token_of_its_own_and_the_server_s_version():
    async with clouds(market("alpha", SKU)) as cloud:
        secret(cloud, "k3s", token="K10cafe::node:shared")
        cloud.pool("alpha", k3sConfig=K3S)
        (alpha,) = cloud.markets.values()
        async with cloud_operator(cloud, wrap=OnK3s):
            await asyncio.sleep(10)
            cloud.world.pod("one", 4)
            await until(lambda: alpha.running)
            (token,), (machine,) = tokens(cloud), alpha.instances.values()
            data = {key: base64.b64decode(value).decode() for key, value in token["data"].items()}
            text = script_of(machine)
            config = yaml.safe_load(written(text, "/etc/rancher/k3s/config.yaml"))
            assert config["token"] == f"K10cafe::{data['token-id']}.{data['token-secret']}"
            assert "shared" not in text, "no machine sees the token that others could join with"
            assert "version=v1.36.4+k3s1\n" in text
            (record,) = cloud.world.records().values()
            assert condition(record, "OwnJoinToken") is None
            await until(lambda: cloud.world.phase("one") == "Running")
            assert tokens(cloud) == []
            await until(lambda: not cloud.running and set(cloud.world.states().values()) <= {"Gone"})
