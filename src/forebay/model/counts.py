"""Numbers with their noun: `1 pod`, `2,000 pods`."""


def counted(number: int, one: str, many: str | None = None) -> str:
    """The number with the noun that it takes. `many`: where it is not `one` with an s."""
    return f"{number:,} {one if number == 1 else many or f'{one}s'}"
