"""What providers of clouds have in common."""

import pytest

from forebay.model.sources import Check
from forebay.providers.base import BadCredentials, Rejected, Unavailable
from forebay.providers.cloud_frame import MOST_PAGES, all_items, checked, require_regions


def pages(*contents):
    """A list in pages; `contents` are the items of each and the token of the next."""
    by_token = dict(zip((None, *(each[1] for each in contents)), contents, strict=False))

    async def page(begin):
        content = by_token[begin]
        if isinstance(content[0], Exception):
            raise content[0]
        return content

    return page


async def test_items_of_all_pages_are_listed_in_order():
    assert await all_items("The list", pages(("ab", "2"), ("", "3"), ("c", None))) == ["a", "b", "c"]
    assert await all_items("The list", pages(((), None))) == []


async def test_a_page_that_fails_makes_the_whole_list_an_error_and_not_a_shorter_one():
    with pytest.raises(Unavailable, match="the second page"):
        await all_items("The list", pages(("a", "2"), (Unavailable("the second page"), None)))


async def test_a_list_that_says_there_is_more_and_not_where_is_an_error():
    async def again(_begin):
        return "a", "2"

    with pytest.raises(Unavailable, match=r"^The list says that there is more, and not where\.$"):
        await all_items("The list", again)


async def test_a_list_without_an_end_is_given_up():
    asked = []

    async def endless(begin):
        asked.append(begin)
        return "a", str(len(asked))

    with pytest.raises(Unavailable, match=r"^The list has no end after 1000 pages\.$"):
        await all_items("The list", endless)
    assert len(asked) == MOST_PAGES


async def test_a_check_says_what_it_found_or_why_it_failed():
    async def works():
        return "All is well."

    async def fails():
        raise BadCredentials("The key is refused.")

    assert await checked(works()) == Check(ok=True, sentence="All is well.")
    assert await checked(fails()) == Check(ok=False, sentence="The key is refused.")


def test_regions_that_a_cloud_lacks_are_named_with_those_it_has():
    require_regions("Cloud", ["east"], {"west", "east"})
    require_regions("Cloud", [], {"west"})
    with pytest.raises(Rejected) as refused:
        require_regions("Cloud", ["north", "moon", "east"], {"west", "east"}, "zone")
    assert str(refused.value) == (
        "Cloud has no zone moon or north. Correct regions of the provider; there are: east, west."
    )
