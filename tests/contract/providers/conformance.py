"""The frame of conformance servers: one cloud's API, stateful, with faults by script and a bill of its own.

A server is a `Market` (stock, machines that boot, join and are reclaimed, the bill) that speaks a real cloud's API. It
lists its `operations`, which are our condensed contract of that API, and has a method `on_<operation>` for each. Every
request and every response is validated against the contract, and against the published spec where that lies beside the
project; what is wrong is in `violations`, which must be empty in the end.

`answer` is a handler: call it in process, or serve it (`python -m tests.contract.providers NAME --port N`).
"""

import asyncio
import re
from collections import defaultdict, deque
from collections.abc import Mapping
from datetime import timedelta
from types import MappingProxyType
from typing import ClassVar, NamedTuple
from urllib.parse import parse_qsl, unquote, urlsplit

import msgspec
import yaml

from forebay.net.clock import now
from forebay.net.transport import AnswerLost, Headers, Response
from forebay.providers.simulated.wire import MarketNode, MarketOrder, MarketTaint
from forebay.simulate.market import Market
from forebay.simulate.market_faults import MarketFault
from forebay.simulate.market_responses import MarketCall
from tests.contract.providers.json_schema import problems
from tests.contract.providers.published import published

#: How a boot payload of the tests tells a simulated machine who it is; a real one runs it.
JOIN_LINE = "join as {{.NodeName}} with {{.BootstrapToken}} labels={{.NodeLabels}} taints={{.NodeTaints}}"
_JOIN_LINE = re.compile(r"join as (\S+)(?: with \S+)?(?: labels=(\S*))?(?: taints=(\S*))?")


#: What a boot script of Forebay gives to kubeadm.
_KUBEADM = re.compile(r"^(apiVersion: kubeadm.*?)^FOREBAY_END$", re.DOTALL | re.MULTILINE)


class Operation(NamedTuple):
    """One operation of the API, in our condensed contract: schemas of what is sent, as the documentation has them."""

    name: str
    method: str
    #: Under the prefix of the server, with `{parameters}`.
    path: str
    #: Schema of the 2xx response; None: it has no body.
    answer: dict | None = None
    body: dict | None = None
    #: Schemas of query parameters, which are all optional unless named in `required`.
    query: Mapping = MappingProxyType({})
    required: tuple[str, ...] = ()
    status: int = 200
    #: Whether the published spec has it: ours may be an excerpt.
    published: bool = True
    #: What it is in the words of markets: faults can be scripted by it for any cloud.
    asks: MarketCall | None = None


class Call(NamedTuple):
    """One request, as its operation reads it."""

    operation: Operation
    request: object
    parameters: dict
    query: dict
    body: object
    #: How many machines a launch rents: more than one is the cloud's mistake.
    copies: int = 1


class Refused(Exception):
    """An operation answers with this fault (a `MarketFault` with status and body) instead."""

    def __init__(self, fault):
        super().__init__(fault.body)
        self.fault = fault


class ConformanceServer(Market):
    """A cloud. Subclasses have the attributes and methods of the first part."""

    #: Name of the provider that rents there.
    provider = ""
    #: Path of all operations.
    prefix = ""
    operations = ()
    #: Schema of the body of every error.
    error: ClassVar[dict] = {}
    #: Where references of the schemas lead to.
    definitions: ClassVar[dict] = {}
    #: Path of the published spec under ../shared/specs, and the base path of its servers.
    spec = None
    #: Published limits: operation (None: all together), requests, seconds.
    limits = ()

    def refusal(self, status, message="", code=None):
        """A `MarketFault` that refuses as this cloud does."""
        raise NotImplementedError

    def no_capacity(self):
        raise NotImplementedError

    def quota_reached(self):
        raise NotImplementedError

    def rate_limited(self, seconds):
        raise NotImplementedError

    def bad_credentials(self):
        return self.refusal(401, "the API key is not valid")

    def credentials(self, base):  # noqa: ARG002 (some name an address of the server)
        """What to write into the Secret, for a server at this URL."""
        return self.key

    # What all have.

    def __init__(self, skus, nodes=None, *, name, enforces_limits=False, **options):
        super().__init__(name, skus, nodes, **options)
        self.violations = []
        #: Things beside machines (keys, scripts, disks), by kind and id.
        self.others = defaultdict(dict)
        self.published = None if self.spec is None else published(*self.spec)
        self._enforces_limits = enforces_limits
        self._scripts = defaultdict(deque)
        self._times = defaultdict(deque)
        self._patterns = [
            (re.compile(re.sub(r"\{(\w+)\}", r"(?P<\1>[^/]+)", each.path) + "$"), each) for each in self.operations
        ]

    def joins(self, nodes):
        """Machines that boot from now on become nodes there, as `RentedNodes` says."""
        self._nodes = nodes

    def script(self, call, *faults):
        """Faults of the next such calls, in order. `call`: the name of an operation, or what it is for markets."""
        names = {each.name for each in self.operations if call in {each.name, each.asks}}
        assert len(names) == 1, f"{call} is {names or 'no operation'}"
        self._scripts[names.pop()].extend(faults)

    def key_of(self, instance_type, region, *, zone=None, spot=False):
        key = (instance_type, region, zone, spot)
        return key if key in self._skus else None

    @property
    def refuses_all(self):
        """Whether no key is accepted at the moment."""
        return self._refuses_until is not None and now() < self._refuses_until

    def listed(self):
        """The machines that a listing shows now."""
        seen = now() - timedelta(seconds=self.list_lag)
        return [each for each in self.instances.values() if each.listed_at(seen)]

    def rent(self, key, *, name, owner="", tags=None, boot=None, copies=1):
        """Rents machines of one kind, or refuses."""
        if self.quota is not None and len(self.running) >= self.quota:
            raise Refused(self.quota_reached())
        if self._stock[key] == 0:
            raise Refused(self.no_capacity())
        sku = self._skus[key]
        order = MarketOrder(
            instance_type=sku.instance_type,
            region=sku.region,
            zone=sku.zone,
            spot=sku.spot,
            cluster="",
            owner=owner or name,
            name=name,
            tags=tags or {},
            boot=boot,
            node=planned_node(boot or ""),
        )
        return [self._rent(sku, order) for _ in range(copies)]

    def end(self, instance_id):
        """Terminates a machine; whether there is one."""
        return self._terminate(instance_id).ok

    async def answer(self, request):
        """Handles one HTTP request."""
        operation, parameters = self._matched(request)
        if operation is None:
            self.violations.append(f"{request}: there is no such operation")
            return _response(self.refusal(404, "there is nothing of that path"))
        asked, about = operation.asks or operation.name, ",".join(parameters.values())
        refused = self._refused(operation, request)
        if refused is not None:
            self._record(asked, about, acted=False, status=refused.status)
            return self._checked(operation, request, refused)
        waiting = self._scripts[operation.name]
        fault = (waiting.popleft() if waiting else None) or MarketFault(acts=True, status=None)
        outcome = fault
        if fault.acts:
            acted = self._outcome(operation, request, parameters, fault.copies)
            outcome = acted if fault.status is None else fault
        told = not (fault.hangs or fault.breaks)
        acted = fault.acts and (acted.status or 500) < 400
        self._record(asked, about, acted=acted, status=outcome.status if told else None)
        if fault.delay:
            await asyncio.sleep(fault.delay)
        if fault.breaks:
            raise AnswerLost(f"{request}: the connection was closed", request)
        if fault.hangs:
            await asyncio.Event().wait()
        return self._checked(operation, request, outcome)

    def _matched(self, request):
        path = urlsplit(request.url).path
        if path.startswith(self.prefix):
            for pattern, operation in self._patterns:
                found = pattern.match(path.removeprefix(self.prefix))
                if found is not None and operation.method == request.method:
                    return operation, {name: unquote(value) for name, value in found.groupdict().items()}
        return None, {}

    def _refused(self, operation, request):
        """Why nothing is done at all, as a fault."""
        if self._unauthorized(request) is not None:
            return self.bad_credentials()
        wrong = self._request_problems(operation, request)
        if wrong:
            self.violations += [f"{request}: {each}" for each in wrong]
            return self.refusal(400, "; ".join(wrong))
        for name, most, seconds in self.limits if self._enforces_limits else ():
            if name in {None, operation.name}:
                times, at = self._times[name], now().timestamp()
                while times and times[0] <= at - seconds:
                    times.popleft()
                if len(times) >= most:
                    return self.rate_limited(seconds)
                times.append(at)
        return None

    def _request_problems(self, operation, request):
        query = dict(parse_qsl(urlsplit(request.url).query, keep_blank_values=True))
        found = [f"query {name} is not known" for name in query.keys() - operation.query.keys()]
        found += [f"query {name} is missing" for name in operation.required if name not in query]
        for name in query.keys() & operation.query.keys():
            schema = operation.query[name]
            value = int(query[name]) if schema.get("type") == "integer" and query[name].isdigit() else query[name]
            found += problems(value, schema, self.definitions, path=f"query {name}")
        if operation.body is not None:
            if request.headers.get("Content-Type", "").partition(";")[0] != "application/json":
                found.append("Content-Type is not application/json")
            try:
                found += problems(msgspec.json.decode(request.body or b""), operation.body, self.definitions)
            except msgspec.DecodeError as error:
                found.append(f"the body is no JSON: {error}")
        elif request.body:
            found.append("a body that the operation does not have")
        if self.published is not None and operation.published and not found:
            found += [f"published spec: {each}" for each in self.published.request_problems(request)]
        return found

    def _outcome(self, operation, request, parameters, copies):
        query = dict(parse_qsl(urlsplit(request.url).query))
        body = msgspec.json.decode(request.body) if request.body else None
        call = Call(operation, request, parameters, query, body, copies)
        try:
            answer = getattr(self, f"on_{operation.name}")(call)
        except Refused as refused:
            return refused.fault
        body = b"" if operation.answer is None else msgspec.json.encode(answer)
        return MarketFault(status=operation.status, body=body)

    def _checked(self, operation, request, outcome):
        """The response. One that this cloud could not have sent is a fault of the server itself."""
        wrong = []
        if outcome.status < 400 or (outcome.status < 500 and outcome.body):
            schema = operation.answer if outcome.status < 400 else self.error
            if schema is not None:
                body = msgspec.json.decode(outcome.body)
                wrong += problems(body, schema, self.definitions)
                if self.published is not None and operation.published:
                    wrong += self.published.response_problems(request, outcome.status, body)
        self.violations += [f"answer {outcome.status} to {request}: {each}" for each in wrong]
        return _response(outcome)


def planned_node(boot):
    """The node that a machine becomes by its boot payload, which has JOIN_LINE or kubeadm's config; else None."""
    found = _JOIN_LINE.search(boot)
    if found is None:
        return _kubeadm_node(boot)
    name, labels, taints = found.groups()
    return MarketNode(
        name=name,
        labels=dict(each.split("=", 1) for each in (labels or "").split(",") if each),
        taints=tuple(
            MarketTaint(key=key, value=value, effect=effect)
            for each in (taints or "").split(",")
            if each
            for start, _, effect in [each.rpartition(":")]
            for key, _, value in [start.partition("=")]
        ),
    )


def kubeadm_registration(boot):
    """What a boot payload has kubeadm register, and the arguments of the kubelet by name; None without kubeadm."""
    files = (yaml.safe_load(boot) or {}).get("write_files", ()) if boot.startswith("#cloud-config") else ()
    found = _KUBEADM.search("".join(each["content"] for each in files) or boot)
    if found is None:
        return None
    config = yaml.safe_load(found[1])
    node = config["nodeRegistration"]
    return config, {each["name"]: each["value"] for each in node["kubeletExtraArgs"]}


def _kubeadm_node(boot):
    found = kubeadm_registration(boot)
    if found is None:
        return None
    config, arguments = found
    node = config["nodeRegistration"]
    return MarketNode(
        name=node["name"],
        labels=dict(each.split("=", 1) for each in arguments.get("node-labels", "").split(",") if each),
        taints=tuple(MarketTaint(**each) for each in node["taints"]),
    )


def _response(fault):
    headers = {"Content-Type": "application/json", **fault.headers} if fault.body else fault.headers
    return Response(fault.status, Headers(headers), fault.body)
