"""A remote container: it runs one pod, and has no node of its own."""

from typing import ClassVar

from forebay.api.gpu_instance import GPUInstance
from forebay.lifecycle.deliveries.policy import DeliveryPolicy
from forebay.model.sources import Instance


class Container(DeliveryPolicy):
    #: It ends with its pod, and neither expires nor idles.
    expires: ClassVar[bool] = False
    runs_its_pod: ClassVar[bool] = True

    def accepted(self, record: GPUInstance, instance: Instance) -> str:
        del record
        return f" as {instance.id}. Next: the container must run."

    def unwanted(self, record: GPUInstance) -> str:
        del record
        return "its pod has ended, is deleted, or runs elsewhere"

    def vanished(self, record: GPUInstance) -> str:
        del record
        return "Somebody else terminated it, or the provider reclaimed it. What ran in it is lost."
