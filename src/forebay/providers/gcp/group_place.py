"""Where a managed instance group is."""

from typing import Final
from urllib.parse import quote

from forebay.providers.base import Rejected


class GroupPlace:
    """Where a group is: its path, and that of its operations."""

    def __init__(self, group: str, location: str) -> None:
        where, slash, name = group.rpartition("/")
        self.location: Final = where if slash else location
        self.name: Final = name
        # A zone is its region with a letter behind: us-central1-a.
        last = self.location.rpartition("-")[2]
        self.regional: Final = not (len(last) == 1 and last.isalpha())
        self.scope: Final = f"{'regions' if self.regional else 'zones'}/{quote(self.location, safe='')}"
        self.path: Final = f"{self.scope}/instanceGroupManagers/{quote(name, safe='')}"


def no_group(place: GroupPlace) -> Rejected:
    """The error of a group that does not exist."""
    return Rejected(
        f"There is no managed instance group {place.name} in {place.location}. Correct existingInstanceGroupNames or "
        "provider.location, or set instanceTemplate to have it created."
    )
