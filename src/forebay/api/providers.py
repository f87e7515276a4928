"""Names of providers, as users write them.

Any package can add a provider, so a name is text of a certain form and not one of a list.
A name that no provider has is reported by a condition of the GPUNodeClass.
"""

from typing import Annotated

from msgspec import Meta

#: Lower-case words, joined by hyphens. Also part of a label value and, in CamelCase, of a condition's type.
ProviderName = Annotated[str, Meta(min_length=1, max_length=40, pattern="^[a-z][a-z0-9]*(-[a-z][a-z0-9]*)*$")]
