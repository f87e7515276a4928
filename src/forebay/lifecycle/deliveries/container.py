"""A remote container: it runs one pod, and has no node of its own."""

from typing import ClassVar

from forebay.api.gpu_instance import GPUInstance
from forebay.lifecycle.deliveries.policy import DeliveryPolicy, DeliveryWords, dearer
from forebay.model.sources import Instance


class Container(DeliveryPolicy):
    words: ClassVar[DeliveryWords] = DeliveryWords(come_up="run its container")
    #: It ends with its pod, and neither expires nor idles.
    expires: ClassVar[bool] = False
    runs_its_pod: ClassVar[bool] = True

    def accepted(self, record: GPUInstance, instance: Instance) -> str:
        return f" as {instance.id}{dearer(record, instance)}. Next: the container must run."

    def unwanted(self, record: GPUInstance) -> str:
        del record
        return "its pod has ended, is deleted, or runs elsewhere"

    def vanished(self, record: GPUInstance) -> str:
        del record
        return "Somebody else terminated it, or the provider reclaimed it. What ran in it is lost."
