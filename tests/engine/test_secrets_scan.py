"""Twenty secrets are planted where users keep them. None may appear in anything that Forebay writes or shows."""

import asyncio
import base64

import msgspec
from structlog.testing import capture_logs

from forebay.embedded.api.kinds import SECRET_KIND
from forebay.engine.metrics import OperatorCollector
from forebay.engine.support_bundle import redacted_snapshot
from forebay.net.transport import Request, Response
from forebay.providers.registry import EnvironmentConfig
from forebay.reporting.observation import Observation
from forebay.simulate.power import PowerCall, Powered
from forebay.simulate.power_faults import refuses
from forebay.web.dashboard import Dashboard
from tests.engine.market_world import cloud_operator, secret
from tests.engine.offload_world import KEY, offload
from tests.engine.power_world import POWER
from tests.engine.test_markets import until

HEADERS = {f"X-Power-{number}": f"planted-header-{number}-51c7" for number in range(5)}
ENV = {f"TOKEN_{number}": f"planted-env-{number}-e02b" for number in range(6)}
FROM = {f"WHOLE_{number}": f"planted-from-{number}-77aa" for number in range(5)}
PASSWORD, HMAC = "planted-registry-password-7c", "planted-hmac-key-19fe"
AUTH = base64.b64encode(f"robot:{PASSWORD}".encode()).decode()
PLANTED = (KEY, PASSWORD, AUTH, HMAC, *HEADERS.values(), *ENV.values(), *FROM.values())
OWN = Powered(name="own", gpus=4, boot=30, hourly_price="0.50")


def plant(far):
    secret(far, "power-api", **HEADERS)
    secret(far, "signing", key="whsec_" + base64.b64encode(HMAC.encode()).decode())
    far.pull_secret("registry", password=PASSWORD, registry="registry.example.com")
    secrets_of_job(far)
    machine = {
        "name": "own",
        "gpuCount": 4,
        "scaleUpEndpoint": f"{POWER}/own/start",
        "scaleDownEndpoint": f"{POWER}/own/stop",
        "headersSecretRef": {"name": "power-api"},
        "hmacSecretRef": {"name": "signing", "key": "key"},
    }
    entry = {"name": "webhook", "machines": [machine]}
    for kind, metadata, spec in (
        ("GPUNodeClass", {"name": "lab"}, {"providers": [entry]}),
        ("GPUNodePool", {"name": "lab", "namespace": "kube-system"}, {"nodeClassRef": {"name": "lab"}}),
    ):
        far.store.create(far.store.kinds.named("forebay.dev/v1alpha1", kind), {"metadata": metadata, "spec": spec})


def secrets_of_job(far):
    for name, values in (("job", ENV), ("whole", FROM)):
        data = {key: base64.b64encode(value.encode()).decode() for key, value in values.items()}
        far.store.create(SECRET_KIND, {"metadata": {"name": name, "namespace": "default"}, "data": data})


def job(far, *, pulls=True):
    env = [{"name": key, "valueFrom": {"secretKeyRef": {"name": "job", "key": key}}} for key in ENV]
    container = {
        "name": "main",
        "image": "registry.example.com/work:1",
        "command": ["train"],
        "env": env,
        "envFrom": [{"secretRef": {"name": "whole"}}],
        "resources": {"limits": {"nvidia.com/gpu": 1}},
    }
    pod = {"containers": [container], **({"imagePullSecrets": [{"name": "registry"}]} if pulls else {})}
    far.job("far", marks={"runpod.io/managed": "true", "runpod.io/offload": "true"}, pod=pod)


async def outputs(far, operator, logged):
    """Everything that Forebay wrote or shows, by where."""
    redactor = operator._redactor
    found = {"log": str([redactor(None, "info", dict(each)) for each in logged])}
    for kind in far.store.kinds:
        if kind is not SECRET_KIND:
            found[kind.kind] = msgspec.json.encode(far.store.list(kind)).decode()
    dashboard = Dashboard(operator.observation, redactor)
    pod = far.the_pod("far")["metadata"]["name"]
    machines = [f"machines/{name}" for name in far.world.records()]
    for page in ("", "demand", "machines", "money", "budgets", "offers", "decisions", f"pods/default/{pod}", *machines):
        answer = await dashboard.handle(Request(method="GET", url=f"http://d/{page}"))
        assert answer.status == 200, page
        found[f"page /{page}"] = (await answer.read()).decode()
    collector = OperatorCollector(lambda: operator.views, lambda: True, operator.counts)
    found["metrics"] = str(list(collector.collect()))
    seen = operator.observation()
    assert isinstance(seen, Observation)
    found["support bundle"] = redacted_snapshot(seen.snapshot, redactor).decode()
    return found


async def test_none_of_twenty_planted_secrets_appears_in_any_output():
    assert len(set(PLANTED)) == 20
    with capture_logs() as logged:
        async with offload(machines=(OWN,)) as far:
            plant(far)
            far.pool()
            # A server that shows its caller what it was sent.
            echo = " ".join(HEADERS.values()).encode()
            far.world.power.script("own", PowerCall.ON, refuses(403, body=echo), refuses(500, body=echo))
            answer, sent = far.cloud.answer, []

            async def listening(request):
                sent.append(f"{dict(request.headers)}{(request.body or b'').decode()}")
                return await answer(request)

            far.cloud.answer = listening
            async with cloud_operator(far.cloud, configured=EnvironmentConfig()) as operator:
                await asyncio.sleep(10)
                far.world.pod("near", 4, runs="300s")
                job(far)
                await until(lambda: far.phase("far") == "Running", 1800)
                await asyncio.sleep(120)
                shown = await outputs(far, operator, logged)
    # The secrets were used: the providers got them.
    assert [each for each in PLANTED if each not in {AUTH, HMAC} and each not in "".join(sent)] == []
    assert PASSWORD in str(far.credentials)
    assert "HTTP 403" in shown["log"] or "403" in shown["GPUInstance"]
    leaks = [(where, each) for where, text in shown.items() for each in PLANTED if each in text]
    assert leaks == []
    assert len(shown) > 20


async def test_a_refusal_that_quotes_what_was_ordered_shows_no_secret_of_the_pod():
    with capture_logs() as logged:
        async with offload() as far:
            far.pool()
            secrets_of_job(far)
            answer, refused = far.cloud.answer, []

            async def quoting(request):
                if request.method != "POST" or not request.url.endswith("/v2/pods"):
                    return await answer(request)
                refused.append(msgspec.json.decode(request.body)["env"])
                quoted = [f"env.{key}: {value!r} is too long" for key, value in refused[-1].items()]
                problem = {"title": "Invalid", "status": 422, "detail": "The body is invalid", "errors": quoted}
                return Response(422, {"Content-Type": "application/problem+json"}, msgspec.json.encode(problem))

            far.cloud.answer = quoting
            async with cloud_operator(far.cloud) as operator:
                await asyncio.sleep(10)
                job(far, pulls=False)
                await until(lambda: refused, 600)
                await asyncio.sleep(30)
                shown = await outputs(far, operator, logged)
            far.delete_job("far")
    planted = (*ENV.values(), *FROM.values())
    assert set(planted) <= set(refused[0].values())
    assert "RunPod answered 422" in shown["GPUInstance"]
    assert [(where, each) for where, text in shown.items() for each in planted if each in text] == []
