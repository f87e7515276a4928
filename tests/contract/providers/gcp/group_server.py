"""The requests about managed instance groups, as a part of the conformance server of Compute Engine."""

import asyncio
import itertools
from datetime import timedelta

import msgspec

from forebay.net.clock import now
from tests.contract.providers.conformance import Refused
from tests.contract.providers.gcp.groups import ManagedGroup
from tests.contract.providers.gcp.tokens import PROJECT


class GroupServer:
    """Mixed into the server: `groups` by name, and a method for each operation."""

    def __init__(self, *args, **options):
        super().__init__(*args, **options)
        self._deletions = []
        self._ids = {}
        self._group_numbers = itertools.count(1)
        #: Machine types of templates that no group has (yet), by name.
        self.templates = {}
        self._handles = []

    def add_group(self, name, instance_type, members=(), labels=None, *, at="us-central1-a", zones=(), **fields):
        """A group of the project's owner, with these members. `zones`: it is regional."""
        group = self.groups[name] = ManagedGroup(self, name, at, instance_type, zones=zones, labels=labels, **fields)
        group.grow(members)
        return group

    def recreate(self, group, member):
        self.groups[group].recreate(member)

    def stop(self):
        for handle in self._handles:
            handle.cancel()
        super().stop()

    # What groups need of the server.

    def loop_call(self, seconds, step):
        self._handles.append(asyncio.get_running_loop().call_later(seconds, step))

    def rent_member(self, order):
        """The machine of a member; or None and why there is none, as code and message."""
        key = self.key_of(order.instance_type, order.region, zone=order.zone, spot=order.spot)
        fault = None
        if self.quota is not None and len(self.running) >= self.quota:
            fault = self.quota_reached()
        elif self._stock[key] == 0:
            fault = self.no_capacity()
        if fault is not None:
            error = msgspec.json.decode(fault.body)["error"]["errors"][0]
            return None, (error["code"], error["message"])
        self.free_name(f"{order.zone}/{order.name}")
        rented = self._rent(self._skus[key], order)
        rented.provider_id = f"gce://{PROJECT}/{rented.id}"
        rented.deletes = False
        return rented, None

    def free_name(self, name):
        """Lets another machine have the name. The bill keeps what had it before."""
        if (before := self.instances.pop(name, None)) is not None:
            self.instances[f"{name}~{next(self._group_numbers)}"] = before

    def number_of(self, rented):
        """The id of a machine: no two have the same, whatever their names."""
        return self._ids.setdefault(id(rented), str(7_000_000_000 + len(self._ids)))

    def _group_of(self, rented):
        return next((each for each in self.groups.values() if rented in each.members.values()), None)

    def _member_ended(self, rented):
        if not rented.traceless:
            number = next(self._operation_numbers)
            self._deletions.append(
                {
                    "kind": "compute#operation",
                    "id": str(number),
                    "name": f"operation-{number}",
                    "operationType": "delete",
                    "zone": self.url(f"zones/{rented.order.zone}"),
                    "targetLink": self.url(f"zones/{rented.order.zone}/instances/{rented.order.name}"),
                    "status": "DONE",
                    "endTime": (rented.line.ended or now()).isoformat(timespec="microseconds"),
                }
            )
        for group in self.groups.values():
            group.ended(rented)

    # Operations.

    def on_get_group(self, call):
        return self._group_named(call).shown()

    on_regional_get_group = on_get_group

    def on_insert_group(self, call):
        self._check_project(call)
        name, where = call.body["name"], call.parameters
        template = call.body["instanceTemplate"].rpartition("/")[2]
        if template not in self.templates:
            raise Refused(self.refusal(404, f"The resource '{template}' was not found"))
        if name in self.groups:
            raise Refused(self.refusal(409, f"The resource '{name}' already exists", "alreadyExists"))
        region = where.get("region")
        zones = sorted({sku.zone for sku in self._skus.values() if sku.region == region}) if region else ()

        def create():
            fields = {key: call.body[key] for key in ("instanceLifecyclePolicy",) if key in call.body}
            made = self.add_group(name, self.templates[template], at=region or where["zone"], zones=zones, **fields)
            made.template, made.created_with = template, call.body

        return self._once(call, create, "insert")

    on_regional_insert_group = on_insert_group

    def on_list_members(self, call):
        seen = now() - timedelta(seconds=self.list_lag)
        shown = list(self._group_named(call).shown_members(lambda rented: rented.listed_at(seen)))
        first = int(call.query.get("pageToken") or 0)
        size = min(int(call.query.get("maxResults", 500)), self._page_size)
        more = {"nextPageToken": str(first + size)} if len(shown) > first + size else {}
        return {"managedInstances": shown[first : first + size], **more}

    on_regional_list_members = on_list_members

    def on_create_members(self, call):
        group = self._group_named(call)
        names = [each["name"] for each in call.body["instances"]]
        if group.refuses_names:
            raise Refused(self.refusal(400, "Instance names are not supported by this group."))
        if taken := [name for name in names if name in group.asked]:
            raise Refused(self.refusal(409, f"The instance '{taken[0]}' already exists", "alreadyExists"))
        return self._once(call, lambda: group.grow(names), "compute.instanceGroupManagers.createInstances")

    on_regional_create_members = on_create_members

    def on_delete_members(self, call):
        group = self._group_named(call)
        asked = call.body["instances"]
        if len({"/" in each for each in asked}) > 1:
            raise Refused(self.refusal(400, "One cannot specify both URLs and names."))
        names = [each.rpartition("/")[2] for each in asked]
        strangers = [name for name in names if name not in group.asked]
        if strangers and not call.body.get("skipInstancesOnValidationError"):
            raise Refused(self.refusal(400, f"The instance '{strangers[0]}' is not a member of the group."))
        return self._once(call, lambda: group.delete(names), "compute.instanceGroupManagers.deleteInstances")

    on_regional_delete_members = on_delete_members

    def on_resize_group(self, call):
        group = self._group_named(call)
        return self._once(call, lambda: group.resize(int(call.query["size"])), "resize")

    on_regional_resize_group = on_resize_group

    def on_insert_request(self, call):
        group, body = self._group_named(call), call.body
        seconds = int(body["requestedRunDuration"]["seconds"])
        if not 600 <= seconds <= 7 * 24 * 3600:
            raise Refused(self.refusal(400, "requestedRunDuration must be between 10 minutes and 7 days."))
        if body["name"] in group.requests:
            raise Refused(self.refusal(409, f"The resize request '{body['name']}' already exists", "alreadyExists"))
        return self._once(call, lambda: group.queue(body, seconds), "insert")

    on_regional_insert_request = on_insert_request

    def on_list_requests(self, call):
        return {"kind": "list", "items": [each.shown() for each in self._group_named(call).requests.values()]}

    on_regional_list_requests = on_list_requests

    def on_cancel_request(self, call):
        request = self._request_named(call)
        if request.state != "ACCEPTED":
            raise Refused(self.refusal(400, f"The request is {request.state}."))
        return self._once(call, request.cancel, "cancel")

    on_regional_cancel_request = on_cancel_request

    def on_delete_request(self, call):
        request, group = self._request_named(call), self._group_named(call)
        if request.state in {"CREATING", "ACCEPTED"}:
            raise Refused(self.refusal(400, f"The request is {request.state}."))
        return self._once(call, lambda: group.requests.pop(request.name), "delete")

    on_regional_delete_request = on_delete_request

    def _request_named(self, call):
        request = self._group_named(call).requests.get(call.parameters["name"])
        if request is None:
            raise Refused(self.refusal(404, "The resize request was not found"))
        return request

    def on_get_template(self, call):
        for group in self.groups.values():
            if group.template == call.parameters["template"]:
                return group.shown_template()
        name = call.parameters["template"]
        if name in self.templates:
            of = ManagedGroup(self, "", "", self.templates[name])
            of.template = name
            return of.shown_template()
        raise Refused(self.refusal(404, "The template was not found"))

    def on_get_regional_operation(self, call):
        return self.on_get_operation(call)

    def on_list_operations(self, call):
        zone = call.parameters["zone"]
        shown = [each for each in reversed(self._deletions) if each["zone"].endswith(f"/{zone}")]
        return {"kind": "compute#operationList", "items": shown[: int(call.query.get("maxResults", 500))]}

    def _once(self, call, act, kind):
        """Acts, unless a request of this id has done so already."""
        request = call.query["requestId"]
        if request not in self._by_request:
            act()
            where = {"zone": call.parameters.get("zone", ""), "region": call.parameters.get("region")}
            self._by_request[request] = self._operation(kind, **where)
        return self._shown(self._by_request[request])

    def _group_named(self, call):
        self._check_project(call)
        group = self.groups.get(call.parameters["group"])
        place = call.parameters.get("zone") or call.parameters.get("region")
        if group is None or group.location != place or group.regional is not ("region" in call.parameters):
            raise Refused(self.refusal(404, f"The resource '{call.parameters['group']}' was not found"))
        return group
