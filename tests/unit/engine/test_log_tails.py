"""Logs that are kept in memory are bounded, each and together."""

from forebay.engine.virtual_node.log_tails import LogTails
from forebay.providers.base import LogLine


def texts(tails, pod):
    return [line.text for line in tails.tail(pod) or ()]


def test_of_a_long_log_the_end_is_kept():
    tails = LogTails(most_of_one=550)
    tails.begin("a")
    for number in range(20):
        tails.add("a", LogLine(text=f"{number:04}"))

    assert texts(tails, "a") == ["0015", "0016", "0017", "0018", "0019"]


def test_many_logs_shorten_the_longest():
    tails = LogTails(most_of_one=10_000, most_of_all=1_100)
    for pod in ("short", "long"):
        tails.begin(pod)
    tails.add("short", LogLine(text="only"))
    for number in range(50):
        tails.add("long", LogLine(text=str(number)))

    assert texts(tails, "short") == ["only"]
    assert texts(tails, "long")[-1] == "49"
    assert len(texts(tails, "long")) == 9


def test_a_log_that_is_read_again_is_not_kept_twice_and_one_of_a_pod_that_is_gone_not_at_all():
    tails = LogTails()
    for _ in range(2):
        tails.begin("a")
        tails.add("a", LogLine(text="once"))
    tails.begin("gone")
    tails.keep(["a"])
    tails.add("gone", LogLine(text="late"))

    assert texts(tails, "a") == ["once"]
    assert tails.tail("gone") is None
