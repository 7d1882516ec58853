"""What is sent to whom: who takes part, channels, and who combines: a server, or neighbours on a graph."""

from majorant.exchange import channel, participation, topology
from majorant.exchange._stage import Encoded, Stage, chain
from majorant.exchange.federation import Federation, federation
from majorant.exchange.gossip import gossip
from majorant.exchange.star import Combine, star, weighted_mean

__all__ = [
    "Combine",
    "Encoded",
    "Federation",
    "Stage",
    "chain",
    "channel",
    "federation",
    "gossip",
    "participation",
    "star",
    "topology",
    "weighted_mean",
]
