"""Logs that are kept in memory are bounded, each and together, and can be followed."""

import asyncio
from datetime import UTC, datetime, timedelta

from forebay.engine.virtual_node.log_tails import LogTails
from forebay.providers.base import LogLine

NOON = datetime(2030, 1, 1, 12, tzinfo=UTC)


def clock():
    return NOON


def texts(tails, pod):
    return [line.text for line in tails.tail(pod) or ()]


def test_of_a_long_log_the_end_is_kept():
    tails = LogTails(clock, most_of_one=550)
    tails.begin("a")
    for number in range(20):
        tails.add("a", LogLine(text=f"{number:04}"))

    assert texts(tails, "a") == ["0015", "0016", "0017", "0018", "0019"]


def test_a_log_is_kept_whole_up_to_its_limit_and_all_together_up_to_theirs():
    line = LogLine(text="four")
    one = LogTails(clock, most_of_one=208)
    one.begin("a")
    one.add("a", line)
    one.add("a", line)
    assert texts(one, "a") == ["four", "four"]
    both = LogTails(clock, most_of_all=208)
    for pod in "ab":
        both.begin(pod)
        both.add(pod, line)
    assert (texts(both, "a"), texts(both, "b")) == (["four"], ["four"])
    both.begin("b")
    both.add("b", line)
    assert texts(both, "a") == ["four"], "what is read again takes no more room than before"
    both.keep(["b"])
    both.add("b", line)
    assert texts(both, "b") == ["four", "four"], "nor does what is forgotten"


async def test_whoever_follows_a_log_gets_each_line_at_once_and_an_end_when_it_is_read_again():
    tails, got = LogTails(clock), []
    tails.begin("a")

    async def follow():
        async for line in tails.following("a", tail=None, since=None):
            got.append(line.text)  # noqa: PERF401 (each at once)

    following = asyncio.create_task(follow())
    for number in range(3):
        await asyncio.sleep(1)
        tails.add("a", LogLine(text=str(number)))
        await asyncio.sleep(0.1)
        assert got == [str(each) for each in range(number + 1)]
    tails.begin("a")
    async with asyncio.timeout(1):
        await following


def test_many_logs_shorten_the_longest():
    tails = LogTails(clock, most_of_one=10_000, most_of_all=1_100)
    for pod in ("short", "long"):
        tails.begin(pod)
    tails.add("short", LogLine(text="only"))
    for number in range(50):
        tails.add("long", LogLine(text=str(number)))

    assert texts(tails, "short") == ["only"]
    assert texts(tails, "long")[-1] == "49"
    assert len(texts(tails, "long")) == 9


def test_a_log_that_is_read_again_is_not_kept_twice_and_one_of_a_pod_that_is_gone_not_at_all():
    tails = LogTails(clock)
    for _ in range(2):
        tails.begin("a")
        tails.add("a", LogLine(text="once"))
    tails.begin("gone")
    tails.keep(["a"])
    tails.add("gone", LogLine(text="late"))

    assert texts(tails, "a") == ["once"]
    assert tails.tail("gone") is None


async def read(lines):
    return [line.text async for line in lines]


async def test_whoever_follows_a_log_gets_what_was_written_and_what_comes_until_it_ends():
    tails = LogTails(clock)
    tails.begin("a")
    tails.add("a", LogLine(text="before"))
    all_of_it, last = (asyncio.create_task(read(tails.following("a", tail=tail, since=None))) for tail in (None, 0))
    await asyncio.sleep(1)
    for text in ("one", "two"):
        tails.add("a", LogLine(text=text))
    await asyncio.sleep(1)
    tails.add("a", LogLine(text="three"))
    await asyncio.sleep(1)
    tails.end("a")

    assert await all_of_it == ["before", "one", "two", "three"]
    assert await last == ["one", "two", "three"]
    assert tails.following("a", tail=None, since=None) is None, "nobody reads it any more"
    assert tails.following("b", tail=None, since=None) is None


async def test_a_log_whose_first_lines_are_gone_is_followed_only_by_those_who_do_not_ask_for_them():
    tails, noon = LogTails(clock, most_of_one=330), NOON
    tails.begin("a")
    for number in range(9):
        tails.add("a", LogLine(text=f"{number:04}", at=noon + timedelta(seconds=number)))

    assert tails.following("a", tail=None, since=None) is None
    assert tails.following("a", tail=4, since=None) is None
    assert tails.following("a", tail=None, since=noon) is None
    followed = [
        asyncio.create_task(read(tails.following("a", tail=3, since=None))),
        asyncio.create_task(read(tails.following("a", tail=None, since=noon + timedelta(seconds=6)))),
    ]
    await asyncio.sleep(1)
    for number in range(9, 12):
        tails.add("a", LogLine(text=f"{number:04}"))
    tails.keep([])

    for each in followed:
        assert (await each)[-1] == "0011", "one that is behind goes on with what is left"
    assert len(await followed[0]) == 6


def test_what_is_kept_is_all_there_is_once_a_stream_has_had_time_to_bring_it():
    moment = NOON
    tails = LogTails(lambda: moment, most_of_one=330)
    assert tails.so_far("a", tail=None, since=None, ended=False) is None
    tails.begin("a")
    tails.add("a", LogLine(text="one", at=NOON))
    assert tails.so_far("a", tail=None, since=None, ended=False) is None, "more may be on its way"
    assert [each.text for each in tails.so_far("a", tail=None, since=None, ended=True)] == ["one"]
    moment += timedelta(seconds=5)
    assert [each.text for each in tails.so_far("a", tail=None, since=None, ended=False)] == ["one"]
    for number in range(9):
        tails.add("a", LogLine(text=str(number), at=moment))
    assert tails.so_far("a", tail=None, since=None, ended=False) is None, "its first lines are gone"
    assert [each.text for each in tails.so_far("a", tail=2, since=None, ended=False)][-2:] == ["7", "8"]
    tails.end("a")
    assert tails.so_far("a", tail=2, since=None, ended=False) is None, "nobody reads it any more"
    assert tails.so_far("a", tail=2, since=None, ended=True) is not None
