"""What is sent to whom: who takes part, channels, and who combines: a server, or neighbours on a graph."""

from majorant.exchange import attack, channel, participation, robust, topology
from majorant.exchange._combine import Combine, weighted_mean
from majorant.exchange._stage import Encoded, Stage, chain
from majorant.exchange.federation import Federation, federation
from majorant.exchange.gossip import gossip
from majorant.exchange.noise import adaptive_clip, gaussian, skellam
from majorant.exchange.privacy import Guarantee, Privacy
from majorant.exchange.star import star

__all__ = [
    "Combine",
    "Encoded",
    "Federation",
    "Guarantee",
    "Privacy",
    "Stage",
    "adaptive_clip",
    "attack",
    "chain",
    "channel",
    "federation",
    "gaussian",
    "gossip",
    "participation",
    "robust",
    "skellam",
    "star",
    "topology",
    "weighted_mean",
]
