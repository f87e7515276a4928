"""Which login of the imagePullSecrets pulls an image."""

import base64
import json

import pytest

from forebay.offload.registry_login import InvalidLogin, registry_login


def config(**auths):
    found = {name: {"auth": base64.b64encode(login.encode()).decode()} for name, login in auths.items()}
    return {".dockerconfigjson": json.dumps({"auths": found}).encode()}


def login(image, **secrets):
    found = registry_login(image, secrets)
    return None if found is None else (found.secret, found.username, found.password.reveal())


HUB = config(**{"https://index.docker.io/v1/": "hub:1"})
GHCR = config(**{"ghcr.io": "gh:2:3"})
PATHS = config(**{"reg.test:5000": "all:a", "reg.test:5000/team": "team:t", "reg.test:5000/team/a": "a:x"})


@pytest.mark.parametrize(
    ("image", "secrets", "expected"),
    [
        ("busybox", {"h": HUB}, ("h", "hub", "1")),
        ("me/work:1", {"h": HUB}, ("h", "hub", "1")),
        ("docker.io/me/work@sha256:0", {"h": HUB}, ("h", "hub", "1")),
        ("index.docker.io/me/work", {"h": HUB}, ("h", "hub", "1")),
        ("ghcr.io/me/work:1", {"h": HUB, "g": GHCR}, ("g", "gh", "2:3")),
        ("quay.io/me/work:1", {"h": HUB, "g": GHCR}, None),
        # The longest path counts, and a path ends at a slash.
        ("reg.test:5000/team/a/b:1", {"p": PATHS}, ("p", "a", "x")),
        ("reg.test:5000/team/ab:1", {"p": PATHS}, ("p", "team", "t")),
        ("reg.test:5000/teams/x", {"p": PATHS}, ("p", "all", "a")),
        ("a.example.test/x", {"w": config(**{"*.example.test": "w:w"})}, ("w", "w", "w")),
        ("a.b.example.test/x", {"w": config(**{"*.example.test": "w:w"})}, None),
        # Of two the first.
        ("busybox", {"a": HUB, "b": config(**{"docker.io": "other:2"})}, ("a", "hub", "1")),
        ("busybox", {"o": {".dockercfg": b'{"docker.io": {"username": "u", "password": "p"}}'}}, ("o", "u", "p")),
        ("busybox", {}, None),
    ],
)
def test_the_login_is_the_one_that_a_kubelet_would_take(image, secrets, expected):
    assert login(image, **secrets) == expected


@pytest.mark.parametrize(
    ("data", "says"),
    [
        ({"password": b"x"}, "has no key .dockerconfigjson"),
        ({".dockerconfigjson": b"{"}, "is not a Docker configuration"),
        ({".dockerconfigjson": b'{"auths": [1]}'}, "is not a Docker configuration"),
        ({".dockerconfigjson": b'{"auths": {"docker.io": {"auth": "%%%"}}}'}, "cannot be read|has no user name"),
        ({".dockerconfigjson": b'{"auths": {"docker.io": {"identitytoken": "t"}}}'}, "has no user name and password"),
    ],
)
def test_a_secret_that_cannot_be_used_is_named_and_nothing_of_it_is_said(data, says):
    with pytest.raises(InvalidLogin, match=says) as raised:
        registry_login("busybox", {"pull": data})
    assert "pull" in str(raised.value)


def test_a_password_is_not_shown():
    assert "hub" in repr(registry_login("busybox", {"h": HUB}))
    assert "1" not in repr(registry_login("busybox", {"h": HUB})).replace("v1", "")
