"""What a random world must end with: no law broken. Where one is, the report names the deaths that led there."""

from hypothesis import note


def no_law_is_broken(outcome):
    for sent, moment in outcome.ledger.died:
        note(f"died {moment} {sent}")
    assert not outcome.found, "\n".join(map(str, outcome.found))
