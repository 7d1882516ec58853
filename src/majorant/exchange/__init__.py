"""What is sent to whom: participation, channels, and who combines: a server, or neighbours on a graph."""

from majorant.exchange import compressors, participation, topology
from majorant.exchange.compression import compressed
from majorant.exchange.gossip import gossip

__all__ = ["compressed", "compressors", "gossip", "participation", "topology"]
