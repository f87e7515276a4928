"""What differs between deliveries: one policy object each for rented nodes, owned machines and containers.

Belongs here: the answers to the questions of `policy.DeliveryPolicy`: when is it up, what proves it gone, which
deadlines hold, what holds or uses it, how does it leave, and which words tell that. Does not belong here: the rules of
the states, which ask these questions and are the same for all. No other package asks which delivery a record has.
"""
