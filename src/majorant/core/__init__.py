"""The core: a federated algorithm is a record of pure functions, and a round is the same few calls for all of them."""

from majorant.core.record import *  # noqa: F403
