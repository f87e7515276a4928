"""Managed instance groups of the conformance server: members, what the group does with them, and what fails."""

import itertools
from datetime import timedelta
from functools import partial

from forebay.model.sources import InstancePhase
from forebay.net.clock import now
from forebay.providers.simulated.wire import MarketNode, MarketOrder

#: Seconds between two tries of a group to create a member.
_RETRY = 20.0


class Member:
    """One member, from when it was asked for until nothing is left of it."""

    def __init__(self, name, zone):
        self.name = name
        self.zone = zone
        #: None: there is no machine yet, or between two of them.
        self.rented = None
        self.action = "CREATING"
        self.target_status = "RUNNING"
        #: Code and message of the last attempt to create it.
        self.error = None
        #: When the provider ends it.
        self.ends = None
        #: It waits in a queue, and has no URL.
        self.queued = False


class QueuedRequest:
    """A resize request: it waits until there is capacity for all its members, which then run for so many seconds."""

    def __init__(self, group, body, seconds):
        self.group = group
        self.name = body["name"]
        self.body = body
        self.seconds = seconds
        self.state = "CREATING"
        self.error = self.last_attempt = None
        group.server.loop_call(1, self._accept)

    def cancel(self):
        self.state = "CANCELLED"

    def fail(self, code, message):
        self.state, self.error = "FAILED", (code, message)

    def _accept(self):
        if self.state == "CREATING":
            self.state = "ACCEPTED"
            self._try()

    def _try(self):
        if self.state != "ACCEPTED":
            return
        self.last_attempt = self.group.provision(self)
        if self.last_attempt is None:
            self.state = "SUCCEEDED"
        else:
            self.group.server.loop_call(_RETRY, self._try)

    def shown(self):
        status = {}
        if self.error is not None:
            status["error"] = _errors(self.error)
        if self.last_attempt is not None:
            status["lastAttempt"] = {"error": _errors(self.last_attempt)}
        return {**self.body, "state": self.state, "status": status}


def _errors(error):
    return {"errors": [{"code": error[0], "message": error[1]}]}


class ManagedGroup:
    """One group. `server` rents the machines."""

    def __init__(self, server, name, location, kind, *, zones=(), spot=False, labels=None, **fields):
        self.server = server
        self.name = name
        self.location = location
        self.kind = kind
        self.zones = tuple(zones) or (location,)
        self.regional = bool(zones)
        self.spot = spot
        self.labels = labels or {}
        self.template = f"{name}-template"
        self.provisioning_model = "SPOT" if spot else "STANDARD"
        #: Whether createInstances is refused.
        self.refuses_names = False
        #: More fields of the group as it is shown.
        self.fields = fields
        self.asked = {}
        #: Resize requests, by name.
        self.requests = {}
        self.target = 0
        #: Deletions that were asked for: when, and of which member.
        self.shrunk = []
        #: Times that it was made smaller without naming the victims.
        self.resized_down = 0
        #: Members that Google deleted at the end of their run.
        self.ran_out = []
        self._numbers = itertools.count(1)

    @property
    def members(self):
        """The machine of each member that is not leaving."""
        return {name: each.rented for name, each in self.asked.items() if each.action != "DELETING"}

    # What people and Forebay ask for.

    def grow(self, names):
        for name in names:
            if name not in self.asked:
                self._ask(Member(name, self._next_zone()))

    def _ask(self, member):
        self.asked[member.name] = member
        self.target += 1
        self.server.loop_call(0, partial(self._create, member))

    def _next_zone(self):
        counts = {zone: sum(each.zone == zone for each in self.asked.values()) for zone in self.zones}
        return min(self.zones, key=lambda zone: (counts[zone], zone))

    def resize(self, size):
        while self.target < size:
            self.grow([f"{self.name}-{next(self._numbers):04x}"])
        if size < self.target:
            self.resized_down += 1
            victims = [name for name, each in self.asked.items() if each.action != "DELETING"][: self.target - size]
            self.delete(victims)

    def queue(self, body, seconds):
        self.requests[body["name"]] = QueuedRequest(self, body, seconds)

    def provision(self, request):
        """Creates the members of a resize request; or why that is not possible now, as code and message."""
        (asked,) = request.body["instances"]
        member = Member(asked["name"], self._next_zone())
        member.rented, error = self.server.rent_member(self._order(member))
        if error is None:
            self.asked[member.name] = member
            self.target += 1
            member.ends = now() + timedelta(seconds=request.seconds)
            self.server.loop_call(request.seconds, partial(self._run_is_over, member))
        return error

    def _run_is_over(self, member):
        if self.asked.get(member.name) is member and member.action != "DELETING":
            self.ran_out.append(member.name)
            self.target -= 1
            member.action, member.target_status = "DELETING", "DELETED"
            self.server.end(member.rented.id)

    def delete(self, names, *, by_hand=False):
        for name in names:
            member = self.asked.get(name)
            if member is None or member.action in {"DELETING", "ABANDONING"}:
                continue
            if not by_hand:
                self.shrunk.append((now(), name))
            self.target -= 1
            member.action, member.target_status = "DELETING", "DELETED"
            if member.rented is None or member.rented.gone_at is not None:
                del self.asked[name]
            else:
                self.server.end(member.rented.id)

    def abandon(self, name):
        """Leaves the machine running, as no member."""
        self.target -= 1
        del self.asked[name]

    def recreate(self, name):
        """Autohealing: the machine is deleted, and another one is created under the same name."""
        member = self.asked[name]
        member.action = "RECREATING"
        self.server.end(member.rented.id)

    # What the group does by itself.

    def fill(self):
        """Tries all members without a machine again."""
        for member in list(self.asked.values()):
            if member.rented is None and member.action in {"CREATING", "RECREATING"} and not member.queued:
                self._create(member)

    def _create(self, member):
        if self.asked.get(member.name) is not member or member.rented is not None or member.action == "DELETING":
            return
        member.rented, member.error = self.server.rent_member(self._order(member))
        if member.rented is None:
            if member.action == "CREATING_WITHOUT_RETRIES":
                self.target -= 1
                del self.asked[member.name]
            else:
                self.server.loop_call(_RETRY, partial(self._create, member))
        else:
            member.action = "CREATING"

    def _order(self, member):
        return MarketOrder(
            instance_type=self.kind,
            region=self.server.region_of(member.zone),
            zone=member.zone,
            spot=self.spot,
            cluster=f"group:{self.name}",
            owner="",
            name=member.name,
            node=MarketNode(name=member.name, labels=self.labels),
        )

    def ended(self, rented):
        """A machine of the group is gone: asked for, by its end, or by somebody else."""
        member = self.asked.get(rented.order.name)
        if member is None or member.rented is not rented:
            return
        if member.action == "DELETING":
            del self.asked[member.name]
        else:
            # Also where somebody has deleted it past the group.
            member.rented, member.action = None, "RECREATING"
            self.server.loop_call(1, partial(self._create, member))

    def preempted(self, rented):
        """A group starts machines again that Google has stopped."""
        member = self.asked.get(rented.order.name)
        if member is not None and member.rented is rented and member.action != "DELETING":
            self.recreate(member.name)

    # What is shown.

    def shown(self):
        url = self.server.url
        where = (
            {
                "region": url(f"regions/{self.location}"),
                "distributionPolicy": {
                    "zones": [{"zone": url(f"zones/{zone}")} for zone in self.zones],
                    "targetShape": "EVEN",
                },
            }
            if self.regional
            else {"zone": url(f"zones/{self.location}")}
        )
        return {
            "kind": "compute#instanceGroupManager",
            "name": self.name,
            "baseInstanceName": self.name,
            "instanceTemplate": url(f"global/instanceTemplates/{self.template}"),
            "targetSize": self.target,
            "listManagedInstancesResults": "PAGINATED",
            "status": {"isStable": all(each.action == "NONE" for each in self.asked.values())},
            **where,
            **self.fields,
        }

    def shown_members(self, visible):
        """The members that a list shows, where `visible` says of a machine whether it does already."""
        for member in self.asked.values():
            if member.rented is None or visible(member.rented):
                yield self._shown_member(member)

    def _shown_member(self, member):
        rented = member.rented
        shown = {"name": member.name, "currentAction": member.action, "targetStatus": member.target_status}
        if not member.queued:
            shown["instance"] = self.server.url(f"zones/{member.zone}/instances/{member.name}")
        if rented is not None:
            if member.action == "CREATING" and rented.phase is InstancePhase.RUNNING:
                member.action = shown["currentAction"] = "NONE"
            shown |= {"id": self.server.number_of(rented), "instanceStatus": self.server.status_of(rented)}
        if member.error is not None:
            code, message = member.error
            shown["lastAttempt"] = {"errors": {"errors": [{"code": code, "message": message}]}}
        if member.ends is not None:
            shown["scheduling"] = {"terminationTimestamp": member.ends.isoformat(timespec="milliseconds")}
        return shown

    def shown_template(self):
        machine, attached = self.server.parts_of(self.kind)
        scheduling = {"provisioningModel": self.provisioning_model, "onHostMaintenance": "TERMINATE"}
        properties = {"machineType": machine, "labels": {"team": "vision"}, "scheduling": scheduling}
        if attached is not None:
            accelerator, count = attached
            properties["guestAccelerators"] = [{"acceleratorType": accelerator, "acceleratorCount": count}]
        return {"kind": "compute#instanceTemplate", "name": self.template, "properties": properties}
