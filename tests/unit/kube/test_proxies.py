"""Which proxy a connection goes through, by the variables that kubectl reads as well."""

import pytest

from forebay.kube.errors import ConfigError
from forebay.kube.proxies import from_environment

PROXY = "http://proxy.example:3128"
SERVER = "https://api.example:6443"


@pytest.mark.parametrize(
    ("url", "env", "proxy"),
    [
        (SERVER, {}, None),
        (SERVER, {"HTTPS_PROXY": PROXY}, PROXY),
        (SERVER, {"https_proxy": PROXY}, PROXY),
        (SERVER, {"HTTPS_PROXY": PROXY, "https_proxy": "http://other"}, PROXY),
        (SERVER, {"HTTPS_PROXY": "", "https_proxy": PROXY}, PROXY),
        (SERVER, {"HTTP_PROXY": PROXY}, None),
        ("http://api.example", {"HTTP_PROXY": PROXY, "HTTPS_PROXY": "http://other"}, PROXY),
        (SERVER, {"HTTPS_PROXY": "proxy.example:3128"}, PROXY),
        (SERVER, {"HTTPS_PROXY": "https://proxy.example"}, "https://proxy.example"),
        ("https://localhost:6443", {"HTTPS_PROXY": PROXY}, None),
        ("https://127.0.0.1:6443", {"HTTPS_PROXY": PROXY}, None),
        ("https://[::1]:6443", {"HTTPS_PROXY": PROXY}, None),
        ("https://10.0.0.1", {"HTTPS_PROXY": PROXY}, PROXY),
        ("https:", {"HTTPS_PROXY": PROXY, "NO_PROXY": "api.example"}, PROXY),
    ],
)
def test_the_proxy_of_a_url(url, env, proxy):
    assert from_environment(url, env) == proxy


@pytest.mark.parametrize(
    ("url", "exceptions", "direct"),
    [
        (SERVER, "*", True),
        (SERVER, "api.example", True),
        (SERVER, "API.Example", True),
        (SERVER, " other , api.example ", True),
        (SERVER, "example", True),
        (SERVER, ".example", True),
        (SERVER, "*.example", True),
        (SERVER, ".api.example", False),
        (SERVER, "pi.example", False),
        (SERVER, "other.example", False),
        (SERVER, "", False),
        (SERVER, " , ", False),
        (SERVER, "api.example:6443", True),
        (SERVER, "api.example:443", False),
        ("https://api.example", "api.example:443", True),
        ("http://api.example", "api.example:80", True),
        (SERVER, "10.0.0.0/8", False),
        (SERVER, "10.0.0.0/99", False),
        ("https://10.1.2.3", "10.0.0.0/8", True),
        ("https://10.1.2.3", "10.9.9.9/8", True),
        ("https://10.1.2.3", "11.0.0.0/8", False),
        ("https://10.1.2.3", "10.0.0.0/99", False),
        ("https://10.1.2.3", "nonsense/8", False),
        ("https://10.1.2.3", "10.1.2.3", True),
        ("https://10.1.2.3", "10.1.2.4", False),
        ("https://10.1.2.3", "2.3", False),
        ("https://10.1.2.3:6443", "10.1.2.3:6443", True),
        ("https://10.1.2.3:6443", "10.1.2.3:443", False),
        ("https://[fd00::1]:6443", "fd00::1", True),
        ("https://[fd00::1]:6443", "[fd00::1]", True),
        ("https://[fd00::1]:6443", "[fd00::1]:6443", True),
        ("https://[fd00::1]:6443", "[fd00::1]:443", False),
        ("https://[fd00::1]:6443", "fd00::/16", True),
    ],
)
@pytest.mark.parametrize("name", ["NO_PROXY", "no_proxy"])
def test_exceptions_go_directly(url, exceptions, direct, name):
    env = {"HTTPS_PROXY": PROXY, "HTTP_PROXY": PROXY, name: exceptions}
    assert from_environment(url, env) == (None if direct else PROXY)


def test_a_proxy_of_another_kind_is_refused_by_the_name_of_its_variable():
    with pytest.raises(ConfigError, match=r"HTTPS_PROXY is not an http or https URL.*change or unset HTTPS_PROXY"):
        from_environment(SERVER, {"HTTPS_PROXY": "socks5://proxy.example"})
