"""The simulated provider: rents machines and containers of a simulated market, for the demo, for trials and for tests.

Belongs here: the provider, and the market's API as it sees it. Does not belong here: the market, which is in
`simulate.market`.
"""
