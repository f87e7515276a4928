"""Pages of the dashboard, asked for as a browser does."""

import asyncio
from html.parser import HTMLParser

import msgspec
import pytest

from forebay.model.reasons import Reason
from forebay.net.redaction import Redactor
from forebay.net.transport import Headers, Request
from forebay.reconcile.decisions import PodEvent
from forebay.reporting.observation import Standby
from forebay.web.access import for_this_machine
from forebay.web.dashboard import Dashboard
from forebay.web.markup import render
from forebay.web.money_pages import budget_cards
from forebay.web.views import PAGES
from tests.unit.budgets.factories import at
from tests.unit.reporting.budget_objects import paid, used
from tests.unit.reporting.objects import node, pod, record
from tests.unit.reporting.test_provisioner_views import FINE
from tests.unit.web.observations import HOSTILE, observed

LISTS = ("/", "/demand", "/machines", "/money", "/budgets", "/offers", "/decisions")
EVERY = (*LISTS, "/machines/m1", "/pods/team/waits", "/machines/none")


class Reader(HTMLParser):
    """Elements, attributes and text of a page, as a browser parses them."""

    def __init__(self):
        super().__init__()
        self.tags, self.attributes, self.text = [], [], []

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += [(tag, name, value or "") for name, value in attrs]

    def handle_data(self, data):
        self.text.append(data)


async def ask(path, seen=None, *, method="GET", redactor=None):
    dashboard = Dashboard(lambda: observed() if seen is None else seen, redactor or Redactor())
    return await get(dashboard, path, method)


async def get(dashboard, path, method="GET"):
    response = await dashboard.handle(Request(method=method, url=f"http://127.0.0.1{path}"))
    return response, (await response.read()).decode()


async def read(path, seen=None):
    reader = Reader()
    reader.feed((await ask(path, seen))[1])
    return reader


@pytest.mark.parametrize("path", LISTS)
async def test_every_page_of_the_navigation_is_there(path):
    response, page = await ask(path)

    assert response.status == 200
    assert "<h1>" in page


async def test_without_a_provider_the_page_of_offers_says_what_to_create():
    page = "".join((await read("/offers", observed(sources={}))).text)

    assert "There are no offers yet." in page
    assert "No GPUNodeClass names a provider: create one (docs/providers/README.md)" in page
    assert "No offer matches." in "".join((await read("/offers?q=nothing")).text)


def test_every_page_is_in_these_tests():
    assert {(path.split("/")[1], path.count("/")) for path in EVERY} == set(PAGES)


@pytest.mark.parametrize("path", EVERY)
async def test_a_page_loads_nothing_from_elsewhere_and_runs_nothing_inline(path):
    response, _ = await ask(path)
    page = await read(path)

    policy = response.headers["Content-Security-Policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert "style" not in page.tags
    assert not [each for each in page.attributes if each[1].startswith("on") or each[1] == "style"]
    links = [value for _, name, value in page.attributes if name in {"src", "href", "action"}]
    assert [value for value in links if not value.startswith(("/", "#")) or value.startswith("//")] == []
    assert page.tags.count("script") == 1


@pytest.mark.parametrize("path", ["/", "/demand", "/machines", "/decisions", f"/machines/{'%3Cb%3E'}"])
async def test_hostile_names_are_text(path):
    waits = pod(HOSTILE, capacity=f"NoOfferFits: {HOSTILE}")
    machine = record(HOSTILE, message=HOSTILE)
    told = PodEvent(pod=waits, reason=Reason.NO_OFFER_FITS, sentence=HOSTILE)
    seen = observed(pending=(waits,), records=(machine,), nodes={HOSTILE: node(HOSTILE)}, decisions=(told,))

    page = await read(path, seen)

    assert "img" not in page.tags
    assert page.tags.count("script") == 1
    assert not [each for each in page.attributes if each[1].startswith("on")]
    if "b%3E" not in path:
        assert any("<script>pwned()" in each for each in page.text)


async def test_one_waiting_pod_and_one_machine_are_named_in_the_singular():
    page = await read("/", observed(pending=(pod("waits"),), records=(record("m1"),)))

    assert {"pod waiting", "machine in service"} <= set(page.text)
    assert "pods waiting" in (await read("/", observed(pending=()))).text


async def test_a_query_comes_back_as_text():
    page = await read("/machines?q=%22%3E%3Cscript%3Epwned()%3C/script%3E&state=%3Cb%3E&page=-1")

    assert page.tags.count("script") == 1
    assert ("input", "value", '"><script>pwned()</script>') in page.attributes


async def test_no_secret_is_shown_also_where_somebody_wrote_one_into_a_message():
    secret = 'pa"ss<word>&1'
    machine = record(message=f"the call with {secret} failed, Authorization: Bearer abcdefgh12345678")
    redactor = Redactor([secret])

    for path in ("/", "/machines", "/machines/m1", "/machines.json"):
        page = (await ask(path, observed(records=(machine,)), redactor=redactor))[1]
        assert "[redacted]" in page or path in {"/", "/machines"}
        assert "ss&lt;word" not in page
        assert "ss<word" not in page
        assert "abcdefgh12345678" not in page


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH"])
@pytest.mark.parametrize("path", ["/", "/events", "/static/forebay.js"])
async def test_nothing_can_be_written(path, method):
    assert (await ask(path, method=method))[0].status == 405


@pytest.mark.parametrize("path", ["/nothing", "/machines/none", "/pods/team/none", "/static/../layout.py", "/a/b/c/d"])
async def test_what_is_not_there_is_said(path):
    response, page = await ask(path)

    assert response.status == 404
    assert "There is no" in page


async def test_a_standby_names_the_leader():
    response, page = await ask("/machines", Standby("forebay-7d9f_abc"))

    assert response.status == 503
    assert "The leader is forebay-7d9f_abc." in page


async def test_a_leader_that_has_not_reconciled_yet_says_what_it_waits_for():
    response, page = await ask("/", Standby("me", "pods are not listed yet: connection refused"))

    assert response.status == 503
    assert "waits for: pods are not listed yet: connection refused" in page


async def test_a_waiting_pod_is_shown_with_its_reason_and_explained_on_its_own_page():
    page = await read("/demand")
    assert "NoOfferFits" in page.text
    assert ("a", "href", "/pods/team/waits") in page.attributes

    explained = "".join((await read("/pods/team/waits")).text)
    assert "Waiting for capacity: requests 1 GPU" in explained
    assert "Next: " in explained


async def test_instance_groups_are_shown_with_their_sizes_and_why():
    seen = observed(provisioners=(FINE,))

    page = await read("/machines", seen)
    found = msgspec.json.decode((await ask("/machines.json", seen))[1])

    assert {"Instance groups", "120", "Target 100: shrink by 20."} <= set(page.text)
    assert [(each["name"], each["size"], each["target"]) for each in found["provisioners"]] == [("pool", 120, 100)]
    assert "Instance groups" not in (await read("/machines")).text


async def test_the_json_of_a_page_has_the_same_values():
    found = msgspec.json.decode((await ask("/machines.json"))[1])

    assert [each["name"] for each in found["machines"]["rows"]] == ["m1", "old"]
    assert found["machines"]["rows"][0]["price_per_hour"] == "1.8"
    assert found["pools"][0]["pool"] == "team/lab"
    money = msgspec.json.decode((await ask("/money.json?span=6h"))[1])
    assert (money["span"], money["total"]["spent"], money["total"]["hourly"]) == ("6h", "6.000000", "0")


async def test_five_thousand_machines_are_paged():
    many = observed(records=tuple(record(f"m{number}", pods=()) for number in range(5000)))

    first = (await ask("/machines", many))[1]
    assert first.count("<tr") < 60
    assert len(first) < 150_000
    assert "5,000 machines" in first
    assert "page 1 of 100" in first
    assert "page 100 of 100" in (await ask("/machines?page=100", many))[1]
    assert "1 of 5,000 machines" in (await ask("/machines?q=m4999", many))[1]


async def test_a_page_is_made_once_for_each_tick():
    seen = [observed()]
    dashboard = Dashboard(lambda: seen[0], Redactor())
    first, second = (await get(dashboard, "/"))[1], (await get(dashboard, "/"))[1]
    assert first is second or first == second

    seen[0] = observed(pending=())
    assert "No pod waits for a GPU." in (await get(dashboard, "/"))[1]


async def test_a_new_tick_is_told_at_once_and_silence_is_kept_alive():
    seen = [observed()]
    dashboard = Dashboard(lambda: seen[0], Redactor())
    response = await dashboard.handle(Request(method="GET", url="http://127.0.0.1/events"))
    assert response.headers["Content-Type"] == "text/event-stream"

    chunks = response.chunks()
    assert await anext(chunks) == b"retry: 3000\n\n"
    seen[0] = observed(pending=())
    assert await anext(chunks) == b"event: tick\ndata: new\n\n"
    assert await anext(chunks) == b": nothing new\n\n"
    rest = [chunk async for chunk in chunks]
    assert set(rest) == {b": nothing new\n\n"}, "the stream ends, so that the browser shows its token again"


async def test_the_bounds_of_a_stream_are_in_seconds_of_the_loop():
    dashboard = Dashboard(observed, Redactor(), refresh=2.0)
    response = await dashboard.handle(Request(method="GET", url="http://127.0.0.1/events"))
    began = asyncio.get_running_loop().time()
    async for _ in response.chunks():
        pass
    assert asyncio.get_running_loop().time() - began < 601


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("127.0.0.1:8082", 200),
        ("localhost", 200),
        ("[::1]:8082", 200),
        ("evil.example:8082", 403),
        ("127.0.0.1.evil.example", 403),
        ("", 403),
    ],
)
async def test_on_loopback_only_a_loopback_name_is_answered(host, status):
    handler = for_this_machine(Dashboard(observed, Redactor()).handle)

    response = await handler(Request(method="GET", url="http://127.0.0.1/", headers=Headers({"Host": host})))

    assert response.status == status


def test_a_budget_of_dollars_is_plotted_with_its_quota():
    shown = render(budget_cards([paid()], at(0)), str)
    for part in ("dollars used", "quota: $100.00", "$30.00 used of $100.00", 'class="quota"'):
        assert part in shown


def test_a_budget_with_two_quotas_shows_both_plots():
    shown = render(budget_cards([paid(hours="10", gpus=1)], at(0)), str)
    for part in ("GPU-h used", "quota: 10 GPU-h", "6.00 GPU-h used of 10", "dollars used", "quota: $100.00"):
        assert part in shown
    assert shown.count("<svg") == 2


def test_a_small_quota_is_not_shown_as_none():
    shown = render(budget_cards([msgspec.structs.replace(used(), quota="0.004000")], at(0)), str)
    assert "0 of 0.004<" in shown


def test_a_budget_of_cores_is_shown_in_core_hours():
    shown = render(budget_cards([msgspec.structs.replace(used((-3, -1)), resource="cpu")], at(0)), str)

    assert "core-h" in shown
    assert "GPU-h" not in shown
