"""What each page of the dashboard shows: its values, for JSON, and the content made from them, for HTML."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeAlias

import msgspec

from forebay.api.gpu_instance import InstanceState
from forebay.budgets.assessment import Assessor
from forebay.reporting.budget_views import closest_to_quota, view_in_snapshot
from forebay.reporting.explanations import Explanation, explain_instance, explain_pod
from forebay.reporting.listed import list_page, machine_page, waiting_page
from forebay.reporting.money import SPANS, MoneyView, money_view, providers_of_classes
from forebay.reporting.observation import Observation, cluster_view, find_pod, pod_event_lines
from forebay.reporting.offers import OfferFilter, capacity, live_rows, matching
from forebay.reporting.offers import document as offers_document
from forebay.reporting.overview import overview
from forebay.reporting.provisioner_views import provisioner_view
from forebay.reporting.status import pool_view
from forebay.web.detail_pages import explanation_page
from forebay.web.list_pages import decisions_page, demand_page, machines_page, offers_page
from forebay.web.markup import Content
from forebay.web.money_pages import budgets_page, money_page
from forebay.web.overview_page import CARDS, overview_page

_BUDGETS: Final = 24
_DEFAULT_SPAN: Final = "24h"


class NoSuchObject(LookupError):
    """The object that the path names is not in the snapshot. The message says so."""


class PageQuery(msgspec.Struct, frozen=True, kw_only=True):
    """What a reader asked for."""

    q: str = ""
    page: int = 1
    state: str = ""
    span: str = _DEFAULT_SPAN


class ViewedPage(msgspec.Struct, frozen=True, kw_only=True):
    title: str
    #: First part of the path of the link in the navigation.
    current: str
    #: The values, for `.json`.
    view: Any
    content: Callable[[], Sequence[Content]]


MakePage: TypeAlias = Callable[[Observation, Assessor, PageQuery, tuple[str, ...]], ViewedPage]


def _overview(seen: Observation, assessor: Assessor, _query: PageQuery, _parts: tuple[str, ...]) -> ViewedPage:
    figures, money = overview(seen.snapshot), _money(seen, _DEFAULT_SPAN)
    closest = closest_to_quota(seen.snapshot, assessor, CARDS)
    return ViewedPage(
        title="Overview",
        current="",
        view={"overview": figures, "money": money, "budgets": closest},
        content=lambda: overview_page(seen, figures, money, closest),
    )


def _demand(seen: Observation, _assessor: Assessor, query: PageQuery, _parts: tuple[str, ...]) -> ViewedPage:
    found = waiting_page(seen, query.q, query.page)
    return ViewedPage(title="Demand", current="demand", view=found, content=lambda: demand_page(seen, found, query.q))


def _machines(seen: Observation, _assessor: Assessor, query: PageQuery, _parts: tuple[str, ...]) -> ViewedPage:
    snapshot = seen.snapshot
    state = query.state if query.state in set(InstanceState) else ""
    found = machine_page(snapshot, query.q, query.page, state=state)
    pools = [pool_view(pool) for pool in sorted(snapshot.pools, key=lambda each: each.key)]
    provisioners = [
        provisioner_view(each) for each in sorted(snapshot.provisioners, key=lambda each: each.metadata.name)
    ]
    figures = overview(snapshot)
    return ViewedPage(
        title="Machines",
        current="machines",
        view={"pools": pools, "provisioners": provisioners, "machines": found},
        content=lambda: machines_page(figures, pools, provisioners, found, query=query.q, state=state),
    )


def _money_page(seen: Observation, _assessor: Assessor, query: PageQuery, _parts: tuple[str, ...]) -> ViewedPage:
    view = _money(seen, query.span if query.span in SPANS else _DEFAULT_SPAN)
    return ViewedPage(title="Money", current="money", view=view, content=lambda: money_page(view))


def _budgets(seen: Observation, assessor: Assessor, query: PageQuery, _parts: tuple[str, ...]) -> ViewedPage:
    snapshot = seen.snapshot
    every = sorted(snapshot.budgets, key=lambda each: each.key)
    found = list_page(
        every, len(every), query.page, lambda each: view_in_snapshot(each, snapshot, assessor), rows=_BUDGETS
    )
    return ViewedPage(title="Budgets", current="budgets", view=found, content=lambda: budgets_page(found, snapshot.now))


def _offers(seen: Observation, _assessor: Assessor, query: PageQuery, _parts: tuple[str, ...]) -> ViewedPage:
    rows, notes = live_rows(seen.snapshot)
    every = matching(rows, OfferFilter())
    wanted = query.q.casefold()
    admitted = [
        row
        for row in every
        if not wanted
        or any(
            wanted in (word or "").casefold() for word in (*row.offer.key[:4], row.offer.gpu_type, capacity(row.offer))
        )
    ]
    found = list_page(admitted, len(every), query.page, lambda row: row)
    return ViewedPage(
        title="Offers",
        current="offers",
        view=offers_document(found.rows, notes),
        content=lambda: offers_page(found, notes, query.q),
    )


def _decisions(seen: Observation, _assessor: Assessor, query: PageQuery, _parts: tuple[str, ...]) -> ViewedPage:
    every = seen.log.newest_first()
    wanted = query.q.casefold()
    admitted = [
        line
        for line in every
        if not wanted or any(wanted in word.casefold() for word in (line.name, line.kind, line.reason, line.decision))
    ]
    found = list_page(admitted, len(every), query.page, lambda line: line)
    return ViewedPage(
        title="Decisions",
        current="decisions",
        view=found,
        content=lambda: decisions_page(found, seen.snapshot.now, query.q),
    )


def _machine(seen: Observation, _assessor: Assessor, _query: PageQuery, parts: tuple[str, ...]) -> ViewedPage:
    record = next((each for each in seen.snapshot.records if each.metadata.name == parts[1]), None)
    if record is None:
        raise NoSuchObject(f"There is no GPUInstance {parts[1]}; records are deleted an hour after termination.")
    return _explained(explain_instance(record, cluster_view(seen.snapshot), []), "machines", seen)


def _pod(seen: Observation, _assessor: Assessor, _query: PageQuery, parts: tuple[str, ...]) -> ViewedPage:
    pod = find_pod(seen.snapshot, parts[1], parts[2])
    if pod is None:
        raise NoSuchObject(f"There is no pod {parts[1]}/{parts[2]} that waits for GPUs or runs on a GPUInstance.")
    event = pod_event_lines(seen.decisions, seen.snapshot.now).get("/".join(pod.key))
    events = [event] if event is not None else []
    return _explained(explain_pod(pod, cluster_view(seen.snapshot), events), "demand", seen)


def _explained(found: Explanation, current: str, seen: Observation) -> ViewedPage:
    return ViewedPage(
        title=found.about, current=current, view=found, content=lambda: explanation_page(found, seen.snapshot.now)
    )


def _money(seen: Observation, span: str) -> MoneyView:
    return money_view(seen.bill, providers_of_classes(seen.snapshot.classes), seen.snapshot.now, span)


#: By the first part of the path, and the number of its parts.
PAGES: Final[Mapping[tuple[str, int], MakePage]] = {
    ("", 1): _overview,
    ("demand", 1): _demand,
    ("machines", 1): _machines,
    ("money", 1): _money_page,
    ("budgets", 1): _budgets,
    ("offers", 1): _offers,
    ("decisions", 1): _decisions,
    ("machines", 2): _machine,
    ("pods", 3): _pod,
}
