"""Requests to RunPod that wait together, and which of them go first."""

import pytest

from forebay.net.transport import Request
from forebay.providers.runpod.lanes import lane_of
from forebay.providers.runpod.wire import BASE


@pytest.mark.parametrize(
    ("method", "path", "lane"),
    [
        ("GET", "/v2/pods", "listing"),
        ("DELETE", "/v2/pods/abc", "termination"),
        ("DELETE", "/v2/registries/abc", "termination"),
        ("POST", "/v2/pods", "creation"),
        ("POST", "/v2/registries", "creation"),
        ("GET", "/v2/pods/abc/logs?source=container&tail=5000", "log"),
        ("GET", "/v2/pods/abc", "listing"),
        ("GET", "/v2/catalog/gpus?include=AVAILABILITY&product=POD&count=1&cloud=SECURE", "catalogue"),
        ("GET", "/v2/registries", "catalogue"),
    ],
)
def test_each_request_has_its_lane(method, path, lane):
    assert lane_of(Request(method=method, url=f"{BASE}{path}")).name == lane


def test_listings_go_before_terminations_and_these_before_all_others():
    listing, termination, creation = (
        lane_of(Request(method=method, url=f"{BASE}/v2/pods")).share for method in ("GET", "DELETE", "POST")
    )
    assert listing > termination > creation
