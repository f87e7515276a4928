"""GPU types that tgp-operator let its users ask for, and that no cloud which rents machines has."""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from forebay.migrate.notes import Document, Notes, items, listed, mapping
from forebay.model.gpu_models import canonical
from forebay.model.sources import Capabilities, Delivery

#: GeForce: RTX 2060 to 5090, with its variants. RTX 4000, 5000 and 6000 are cards for workstations and servers.
_GEFORCE: Final = re.compile(r"RTX[2-9]0[5-9]0(Ti|Super|D)?", re.IGNORECASE)


def note_geforce(where: str, names: Sequence[Any], clouds: Sequence[str], notes: Notes) -> None:
    """A note where a list of GPU types names GeForce cards, and only `clouds` could serve it."""
    consumer = [str(each) for each in names if _GEFORCE.fullmatch(canonical(str(each)))]
    if not consumer or not clouds:
        return
    fact = (
        f"{where}: {listed(consumer)} cannot be rented as a machine: {listed(clouds)} {_has(clouds)} no GeForce cards"
    )
    if len(consumer) < len(names):
        notes.changed(f"{fact}. The other types can.")
    else:
        notes.needed(
            f"{fact}, so that nothing would ever be launched. Name types that `forebay offers` shows, such as A10, L4 "
            "or A6000. (RunPod has GeForce cards, for Jobs that are marked for it.)"
        )


def clouds_of(entries: Iterable[Mapping[str, Any]], known: Mapping[str, Capabilities]) -> list[str]:
    """Providers among the entries that rent machines, by name; none where one may have any GPU: one that is not known,
    or whose machines join without being told how, as only those of a simulated market do.
    """
    machines = []
    for each in entries:
        name = str(each.get("name", ""))
        capabilities = known.get(name)
        if capabilities is None:
            return []
        if Delivery.NODE in capabilities.deliveries:
            if not capabilities.needs_join:
                return []
            machines.append(name)
    return machines


def types_required(pool: Document, keys: Iterable[str]) -> list[Any]:
    """GPU types that a pool's template is limited to."""
    template = mapping(mapping(mapping(pool, "spec"), "template"), "spec")
    wanted = set(keys)
    return [
        value
        for each in items(template, "requirements")
        if isinstance(each, dict) and each.get("key") in wanted and each.get("operator") == "In"
        for value in items(each, "values")
    ]


def _has(clouds: Sequence[str]) -> str:
    return "have" if len(clouds) > 1 else "has"
