"""What only one place may know: how each delivery differs, and which providers there are."""

import ast
import re
from pathlib import Path

from forebay.providers.own import OWN

SOURCE = Path(__file__).resolve().parents[2] / "src" / "forebay"
#: The demo writes manifests, as its user would; `webhook` of an old chart's values is something else.
WITH_NAMES = ("providers/", "cli/demo/", "migrate/chart_values.py")
#: Who defines deliveries, whose offers have one, and what it means: markets of simulations and migrations name theirs.
OF_DELIVERIES = ("model/sources.py", "lifecycle/deliveries/", "providers/", "simulate/", "migrate/")


def lines():
    for path in sorted(SOURCE.rglob("*.py")):
        for number, line in enumerate(path.read_text().splitlines(), start=1):
            yield path.relative_to(SOURCE).as_posix(), number, line


def test_only_the_policies_of_deliveries_ask_which_delivery_it_is():
    elsewhere = [
        f"{path}:{number}: {line.strip()}"
        for path, number, line in lines()
        if re.search(r"\bDelivery\.[A-Z]", line) and not path.startswith(OF_DELIVERIES)
    ]
    assert elsewhere == []


def test_no_code_outside_its_folder_knows_a_provider_by_name():
    """Texts that people read may name one as an example; nothing can be compared with those."""
    found = [
        f"{path.relative_to(SOURCE)}:{each.lineno}: {each.value}"
        for path in sorted(SOURCE.rglob("*.py"))
        if not path.relative_to(SOURCE).as_posix().startswith(WITH_NAMES)
        for each in ast.walk(ast.parse(path.read_text()))
        if isinstance(each, ast.Constant) and each.value in OWN
    ]
    assert found == []
