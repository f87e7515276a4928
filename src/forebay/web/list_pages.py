"""Pages of lists: demand, machines, offers, decisions."""

from collections.abc import Sequence
from datetime import datetime

from forebay.api.gpu_instance import InstanceState
from forebay.planning.offer_table import Row
from forebay.reporting.decision_log import DecisionLine
from forebay.reporting.life_lines import axis_start, life_line
from forebay.reporting.listed import ListPage, waiting_reasons
from forebay.reporting.machines import MachineView
from forebay.reporting.observation import Observation
from forebay.reporting.offers import capacity, place, price_per_gpu
from forebay.reporting.overview import Overview
from forebay.reporting.provisioner_views import ProvisionerView
from forebay.reporting.status import PoolView, WaitingPod
from forebay.web.markup import Content, Element, h, url
from forebay.web.plots import life_line_legend, life_line_plot
from forebay.web.tables import (
    Cell,
    age,
    badge,
    dollars,
    filter_form,
    pager,
    per_hour,
    reason_text,
    section,
    state_badge,
    table,
)


def demand_page(seen: Observation, found: ListPage[WaitingPod], query: str) -> list[Content]:
    now = seen.snapshot.now
    reasons = [
        (reason, [Cell(reason, key=True), Cell(f"{pods:,}", number=True), Cell(f"{gpus:,}", number=True)])
        for reason, pods, gpus in waiting_reasons(seen.snapshot)
    ]
    return [
        section(
            "By reason",
            table("Waiting pods by reason", ("Reason", "Pods", "GPUs"), reasons, empty="No pod waits for a GPU."),
            id_="reasons",
        ),
        section(
            "Waiting pods",
            filter_form("/demand", query, "Filter pods", "name, namespace, owner or reason"),
            waiting_table(found.rows, now),
            pager(found, "demand", "pods", q=query),
            id_="waiting",
        ),
    ]


def waiting_table(rows: Sequence[WaitingPod], now: datetime) -> Element:
    return table(
        "Waiting pods and why they wait",
        ("Pod", "GPUs", "Waits", "Why"),
        [
            (
                each.pod,
                [
                    Cell(h("a", each.pod, href=url("pods", *each.pod.split("/", 1))), key=True),
                    Cell(each.gpus, number=True),
                    Cell(age(each.since, now), number=True),
                    Cell(reason_text(each.reason), class_="why"),
                ],
            )
            for each in rows
        ],
        empty="No pod waits for a GPU.",
    )


def machines_page(
    figures: Overview,
    pools: Sequence[PoolView],
    provisioners: Sequence[ProvisionerView],
    found: ListPage[MachineView],
    *,
    query: str,
    state: str,
) -> list[Content]:
    now = figures.at
    every = sum(figures.states.values())
    states = [("", "All", every), *((each, each, figures.states.get(each, 0)) for each in InstanceState)]
    links = (
        h(
            "li",
            h(
                "a",
                title,
                h("span", f"{count:,}", class_="count"),
                href=url("machines", q=query, state=value),
                aria_current="true" if value == state else None,
            ),
        )
        for value, title, count in states
        if count or value == state
    )
    return [
        section("Pools", pool_table(pools), id_="pools"),
        *([section("Instance groups", provisioner_table(provisioners), id_="provisioners")] if provisioners else []),
        section(
            "Machines and containers",
            filter_form("/machines", query, "Filter machines", "name, pool, provider, type or reason", state=state),
            h("ul", *links, class_="choices", aria_label="States"),
            machine_table(found.rows, now),
            pager(found, "machines", "machines", q=query, state=state),
            id_="machines",
        ),
    ]


def pool_table(pools: Sequence[PoolView]) -> Element:
    return table(
        "Pools",
        ("Pool", "Class", "Machines", "Cost", "Ready", "Why"),
        [
            (
                each.pool,
                [
                    Cell(h("a", each.pool, href=url("machines", q=each.pool)), key=True),
                    Cell(each.node_class),
                    Cell(f"{each.nodes:,}", number=True),
                    Cell(per_hour(each.hourly), number=True),
                    Cell(_ready(each.ready)),
                    Cell(reason_text(each.reason), class_="why"),
                ],
            )
            for each in pools
        ],
        empty="There are no pools.",
    )


def provisioner_table(provisioners: Sequence[ProvisionerView]) -> Element:
    return table(
        "Instance groups of NodeProvisioners",
        ("NodeProvisioner", "Nodes", "Target", "In use", "Tainted", "Ready", "Why"),
        [
            (
                each.name,
                [
                    Cell(each.name, key=True),
                    *(
                        Cell("-" if figure is None else f"{figure:,}", number=True)
                        for figure in (each.size, each.target, each.in_use, each.tainted)
                    ),
                    Cell(_ready(each.ready)),
                    Cell(reason_text(each.reason), class_="why"),
                ],
            )
            for each in provisioners
        ],
        empty="There are no NodeProvisioners.",
    )


def _ready(status: str) -> Element:
    return badge(status, {"True": "ok", "False": "bad"}.get(status, "dim"))


def machine_table(rows: Sequence[MachineView], now: datetime) -> list[Content]:
    """With what the colours of the life lines mean."""
    start = axis_start(rows, now)
    lines = {each.name: life_line(each, start, now) for each in rows}
    axis = f"Life since {start:%H:%M} UTC" if now.date() == start.date() else f"Life since {start:%d %b %H:%M} UTC"
    shown = table(
        "Machines and containers",
        ("Machine", "State", "For", "Provider", "GPUs", "Price", "Cost", "Pods", axis),
        [
            (
                each.name,
                [
                    Cell(h("a", each.name, href=url("machines", each.name)), key=True),
                    Cell(state_badge(each.state), h("small", each.reason) if each.reason else None),
                    Cell(age(each.since, now), number=True),
                    Cell(each.provider, h("small", each.type) if each.type not in {"", each.name} else None),
                    Cell(each.gpus, h("small", each.gpu_type) if each.gpu_type else None, number=True),
                    Cell(per_hour(each.price_per_hour), number=True),
                    Cell(dollars(each.cost_exact), number=True),
                    Cell(len(each.pods), number=True),
                    Cell(life_line_plot(lines[each.name], start, now, each.name), class_="life"),
                ],
            )
            for each in rows
        ],
        empty="There are no GPUInstances.",
    )
    return [shown, life_line_legend(lines.values())]


def offers_page(found: ListPage[Row], notes: Sequence[str], query: str) -> list[Content]:
    return [
        section(
            "Offers, the cheapest GPU first",
            filter_form("/offers", query, "Filter offers", "GPU, type, provider, region, spot or own"),
            table(
                "Offers by the price of one GPU",
                ("Type", "Provider", "GPUs", "Memory", "Per GPU", "Price", "Where", "Capacity", "Stock"),
                [(f"{'/'.join(map(str, row.offer.key))} {row.offer.price}", _offer(row)) for row in found.rows],
                empty="No offer matches." if query else "There are no offers yet.",
            ),
            pager(found, "offers", "offers", q=query),
            [h("p", note, class_="note") for note in notes],
            id_="offers",
        )
    ]


def _offer(row: Row) -> list[Cell]:
    offer = row.offer
    memory = f"{offer.gpu_memory_gib} GiB" if offer.gpu_memory_gib else "-"
    return [
        Cell(offer.instance_type, key=True),
        Cell(offer.provider),
        Cell(f"{float(row.gpus):g}", h("small", offer.gpu_type) if offer.gpu_type else None, number=True),
        Cell(memory, number=True),
        Cell(str(price_per_gpu(row)) if row.gpus else "-", number=True),
        Cell(str(offer.price), h("small", f"list price of {row.as_of}") if row.as_of else None, number=True),
        Cell(place(offer)),
        Cell(badge(capacity(offer), "warn" if offer.spot else "dim")),
        Cell("unknown" if offer.stock is None else f"{offer.stock:,}", number=True),
    ]


def decisions_page(found: ListPage[DecisionLine], now: datetime, query: str) -> list[Content]:
    return [
        section(
            "Decisions, the newest first",
            filter_form("/decisions", query, "Filter decisions", "object, reason or decision"),
            decision_table(found.rows, now),
            pager(found, "decisions", "decisions", q=query),
            h(
                "p",
                "Kept in memory since this operator began to lead. A decision that repeats the last one about its "
                "object is shown once.",
                class_="note",
            ),
            id_="decisions",
        )
    ]


def decision_table(rows: Sequence[DecisionLine], now: datetime) -> Element:
    return table(
        "Decisions",
        ("Ago", "Decision", "About", "Why"),
        [
            (
                f"{each.at.timestamp()} {each.decision} {each.kind} {each.name}",
                [
                    Cell(age(each.at, now), number=True),
                    Cell(each.decision, class_="mono"),
                    Cell(_about(each), key=True),
                    Cell(h("b", each.reason), " ", each.sentence, class_="why"),
                ],
            )
            for each in rows
        ],
        empty="Nothing has been decided yet.",
    )


def _about(line: DecisionLine) -> Content:
    kind = h("small", line.kind, class_="kind")
    match line.kind:
        case "GPUInstance":
            return [kind, h("a", line.name, href=url("machines", line.name))]
        case "Pod":
            return [kind, h("a", line.name, href=url("pods", *line.name.split("/", 1)))]
        case _:
            return [kind, line.name]
