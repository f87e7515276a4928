"""The frame of conformance servers: what it must notice."""

import msgspec
import pytest

from forebay.net.transport import AnswerLost, Headers, Request
from forebay.simulate import market_faults
from forebay.simulate.market_faults import MarketFault
from forebay.simulate.market_goods import Sku
from forebay.simulate.market_responses import MarketCall
from tests.contract.providers.conformance import ConformanceServer, Operation, planned_node
from tests.contract.providers.json_schema import problems

_ERROR = {"type": "object", "required": ["message"], "properties": {"message": {"type": "string"}}}
_BOX = {"type": "object", "required": ["id"], "properties": {"id": {"type": "string"}}}


class ToyCloud(ConformanceServer):
    prefix = "/v1"
    error = _ERROR
    limits = ((None, 2, 10),)
    operations = (
        Operation(
            "launch",
            "POST",
            "/boxes",
            _BOX,
            {"type": "object", "required": ["name"], "properties": {"name": {"type": "string", "maxLength": 8}}},
            asks=MarketCall.LAUNCH,
        ),
        Operation("list_boxes", "GET", "/boxes", {"type": "array", "items": _BOX}, asks=MarketCall.LIST),
        Operation("terminate", "DELETE", "/boxes/{id}", status=204, asks=MarketCall.TERMINATE),
    )

    def refusal(self, status, message="", code=None):  # noqa: ARG002 (of all clouds)
        return MarketFault(status=status, body=msgspec.json.encode({"message": message}))

    def no_capacity(self):
        return self.refusal(409, "sold out")

    def rate_limited(self, seconds):
        return MarketFault(status=429, headers={"Retry-After": str(seconds)})

    def on_launch(self, call):
        rented = self.rent(self.key_of("box", "west"), name=call.body["name"], copies=call.copies)
        return {"id": rented[0].id}

    def on_list_boxes(self, _call):
        return [{"id": each.id} for each in self.listed()]

    def on_terminate(self, call):
        self.end(call.parameters["id"])


def cloud(**options):
    sku = Sku(instance_type="box", gpus=1, hourly_price="1.00", region="west", shutdown=5)
    return ToyCloud([sku], name="toy", key="secret", **options)


async def call(server, method, path, body=None, key="secret"):
    headers = {"Authorization": f"Bearer {key}"} | ({"Content-Type": "application/json"} if body else {})
    encoded = msgspec.json.encode(body) if body else None
    request = Request(method=method, url=f"http://toy{path}", headers=Headers(headers), body=encoded)
    response = await server.answer(request)
    text = await response.read()
    return response.status, msgspec.json.decode(text) if text else None


async def test_a_machine_is_rented_listed_terminated_and_billed():
    server = cloud()
    status, made = await call(server, "POST", "/v1/boxes", {"name": "a"})
    assert (status, server.running) == (200, {made["id"]})
    assert await call(server, "GET", "/v1/boxes") == (200, [made])
    assert await call(server, "DELETE", f"/v1/boxes/{made['id']}") == (204, None)
    assert server.bill() > 0
    assert [each.asked for each in server.calls] == [MarketCall.LAUNCH, MarketCall.LIST, MarketCall.TERMINATE]
    assert server.violations == []
    server.stop()


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/boxes", {"name": "far too long"}),
        ("/v1/boxes", {"name": "a", "colour": "red"}),
        ("/v1/boxes?dry=1", {"name": "a"}),
        ("/v1/crates", {"name": "a"}),
    ],
)
async def test_a_request_that_the_contract_does_not_allow_is_refused_and_noted(path, body):
    server = cloud()
    status, _ = await call(server, "POST", path, body)
    assert status in {400, 404}
    assert len(server.violations) == 1
    assert server.running == frozenset()


async def test_an_answer_that_the_contract_does_not_allow_is_noted():
    server = cloud()
    server.script("launch", MarketFault(status=409, body=b'{"error": "sold out"}'))
    await call(server, "POST", "/v1/boxes", {"name": "a"})
    assert server.violations == [
        "answer 409 to POST http://toy/v1/boxes: $: message is missing",
        "answer 409 to POST http://toy/v1/boxes: $: error is not known",
    ]


async def test_faults_apply_to_the_next_call_and_an_answer_is_lost_after_the_call_took_effect():
    server = cloud()
    server.script(MarketCall.LAUNCH, server.no_capacity(), market_faults.answer_lost())
    assert await call(server, "POST", "/v1/boxes", {"name": "a"}) == (409, {"message": "sold out"})
    with pytest.raises(AnswerLost):
        await call(server, "POST", "/v1/boxes", {"name": "a"})
    assert len(server.running) == 1
    assert [(each.acted, each.status) for each in server.calls] == [(False, 409), (True, None)]
    server.stop()


async def test_more_than_the_published_limit_is_refused_where_the_server_enforces_it():
    server = cloud(enforces_limits=True)
    assert [(await call(server, "GET", "/v1/boxes"))[0] for _ in range(3)] == [200, 200, 429]


async def test_another_key_is_refused():
    assert await call(cloud(), "GET", "/v1/boxes", key="other") == (401, {"message": "the API key is not valid"})


def test_a_machine_becomes_the_node_that_its_boot_payload_names():
    node = planned_node("#cloud-config\n# join as n-1 with abc.def labels=a=b,c= taints=k=v:NoSchedule,l=:NoExecute\n")
    assert (node.name, dict(node.labels)) == ("n-1", {"a": "b", "c": ""})
    assert [(each.key, each.value, each.effect) for each in node.taints] == [
        ("k", "v", "NoSchedule"),
        ("l", "", "NoExecute"),
    ]
    assert planned_node("#cloud-config") is None


@pytest.mark.parametrize(
    ("value", "schema", "found"),
    [
        (True, {"type": "integer"}, "$: True is not of type integer"),
        (None, {"type": "string", "nullable": True}, None),
        ("x", {"enum": ["y"]}, "$: 'x' is none of ['y']"),
        ({"a": [1, "b"]}, {"properties": {"a": {"items": {"type": "integer"}}}}, "$.a[1]: 'b' is not of type integer"),
        ("2026", {"type": "string", "format": "date-time"}, "$: '2026' is no date-time"),
        ({"b": 1}, {"anyOf": [{"properties": {"a": {}}}, {"properties": {"b": {"type": "integer"}}}]}, None),
        ({"b": 1}, {"allOf": [{"properties": {"a": {}}}, {"required": ["c"]}]}, "$: c is missing"),
        ({"b": "1"}, {"additionalProperties": {"type": "integer"}}, "$.b: '1' is not of type integer"),
        ({"d": 5}, {"$ref": "#/of", "of": {"properties": {"d": {"maximum": 4}}}}, "$.d: 5 is out of bounds"),
    ],
)
def test_what_json_schema_finds(value, schema, found):
    assert problems(value, {key: each for key, each in schema.items() if key != "of"}, schema) == [found] * bool(found)


def test_a_keyword_that_would_be_ignored_is_an_error():
    with pytest.raises(AssertionError, match="multipleOf"):
        problems(1, {"multipleOf": 2})
