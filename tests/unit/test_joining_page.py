"""The page about joining: its classes are accepted and can be used."""

import re
from pathlib import Path

import pytest
import yaml

from forebay.bootstrap.class_checks import join_problem
from forebay.model.sources import Capabilities, Delivery, Join
from tests.joining import spec_of

PAGE = (Path(__file__).parents[2] / "docs/joining.md").read_text()
BLOCKS = re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)
ANY_JOIN = Capabilities(deliveries=(Delivery.NODE,), joins=frozenset(Join))


@pytest.mark.parametrize("block", BLOCKS, ids=lambda block: block.partition(":")[0])
def test_every_class_on_the_page_can_be_used(block):
    fields = yaml.safe_load(block.replace("sha256:…", f"sha256:{'0' * 64}"))
    assert join_problem(spec_of(**fields), ANY_JOIN) is None


def test_every_way_to_join_is_on_the_page():
    assert {block.partition(":")[0] for block in BLOCKS} == {*map(str, Join), "tailscaleConfig"}
