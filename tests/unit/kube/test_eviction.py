"""Which answers of the eviction API are about the pod, and which about the server."""

import pytest

from forebay.kube.errors import Details, Status, StatusCause, from_status
from forebay.kube.eviction import is_refusal

BY_BUDGET = Details(causes=(StatusCause(reason="DisruptionBudget"),))


@pytest.mark.parametrize(
    ("status", "details", "refused"),
    [
        (429, BY_BUDGET, True),
        (429, None, False),
        (500, None, True),
        (403, None, True),
        (422, None, True),
        (401, None, False),
        (404, None, False),
        (409, None, False),
        (503, None, False),
        (504, None, False),
    ],
)
def test_a_refusal_is_about_the_pod_and_any_other_error_about_the_server(status, details, refused):
    assert is_refusal(from_status(Status(message="no", details=details), status=status)) is refused
