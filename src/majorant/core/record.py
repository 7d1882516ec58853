"""A federated algorithm: a record of pure functions, grouped by who runs them.

One round, for every algorithm and every engine::

    view          = server.broadcast(server, key)                all that clients are sent
    upload, state = client.update(view, state, data, key)        on every client that takes part
    upload        = what arrives of it through the channel
    state         = client.delivered(view, state, upload)        only once the message has arrived
    server        = server.update(server, view, uploads)         on the sum of what arrived, or on each

All functions see one client at a time; engines vectorise them. A simple method writes `ServerSide.init`,
`ClientSide.update`, `Deployment.personalize` and `Deployment.predict`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax

from majorant.core.keys import Key
from majorant.core.messages import Answer, ClientData, Server, Upload, Uploads, View
from majorant.core.trees import Tree


def broadcast_value(server: Server, key: Key) -> View:
    """The default broadcast: the server's value and hyperparameters, to everybody."""
    del key
    return view_of(server)


def view_of(server: Server, *, value: Tree = None, shared: Tree = (), travels: Tree = True) -> View:
    """A view of the server, with another value where one is given and with what all clients are told beside it."""
    value = server.value if value is None else value
    return View(value, server.hyper, server.round, server.rounds, shared, server.terms, travels)


def replace_by_mean(server: Server, view: View, uploads: Uploads) -> Server:
    """The default server step: the new value is the weighted mean of the uploads."""
    del view
    return server._replace(value=uploads.mean())


class Lens(NamedTuple):
    """A part of the server's knowledge that peers average beside their uploads."""

    get: Callable[[Server], Tree]
    put: Callable[[Server, Tree], Server]


class ServerSide(NamedTuple):
    """What the server does."""

    init: Callable[[Key], Server]
    update: Callable[[Server, View, Uploads], Server] = replace_by_mean
    broadcast: Callable[[Server, Key], View] = broadcast_value
    address: Callable[[View, jax.Array], View] = lambda view, slot: view  # the part of the view that a client is sent
    consensus: Lens | None = None  # for uploads that are no points: what peers average so that they agree


class ClientSide(NamedTuple):
    """What a client does; its state is never sent."""

    update: Callable[[View, Tree, ClientData, Key], tuple[Upload, Tree]]
    init: Callable[[View, ClientData, Key], Tree] = lambda view, data, key: ()
    delivered: Callable[[View, Tree, Upload], Tree] = lambda view, state, upload: state
    origin: Callable[[View], Tree] = lambda view: view.value  # the point that an upload departs from


class Deployment(NamedTuple):
    """The models that clients use. ``predict`` gives class probabilities (n, classes), or values (n,)."""

    personalize: Callable[[View, Tree, ClientData, Key], Tree]  # state and own samples -> the client's model
    predict: Callable[[Tree, jax.Array], jax.Array]
    join: Callable[[View, ClientData, Key], Tree] | None = None  # the state of a newcomer; None: `ClientSide.init`
    release: Callable[[Server, Key], View] | None = None  # what is sent for deployment; None: a round's view
    losses: Callable[[Tree, jax.Array, jax.Array], jax.Array] | None = None  # (model, x, y) -> (n,): without labels, …
    # … a client's score is the mean of these in place of its predictions' accuracy
    mixture: Callable[[Tree], jax.Array] | None = None  # the mixture weights in a model, where it has some
    scores: Callable[[Tree, jax.Array, jax.Array], jax.Array] | None = None  # (model, x, y) -> (n, 2): the losses and …
    # … scores of samples that are judged by more than their own prediction
    model: Any = None  # that predicts, where it is a `Model`: it says what samples and labels it is for


class Setup(NamedTuple):
    """One question to every client before round 1."""

    ask: Callable[[View, Tree, ClientData, Key], Answer]
    start: Callable[[Server, Answer], Server]  # with the answers of all clients together


class SampleNoise(NamedTuple):
    """Noise by which a local solver hides single samples, in every step on a Poisson sample of them."""

    multiplier: float  # of its standard deviation over the largest norm of a sample's gradient
    clip: float
    batch_size: int  # samples that are expected in a step
    steps: int  # in a round


class Traits(NamedTuple):
    """Properties of a method that engines and exchanges must know."""

    needs_everyone: bool = False  # refuses partial participation
    points: bool = True  # uploads are points near the origin, not gradients: peers can average them
    reads: str = "sum"  # what `ServerSide.update` reads: the "sum" of the uploads, or "each" by its slot
    moves_alone: bool = False  # the server steps in a round without uploads; the others wait
    equal_sizes: bool = False  # needs clients with the same number of samples
    stateless: bool = False  # clients keep nothing from one round to the next
    uneven_rounds: bool = False  # how long a round takes is drawn at random, for each run on its own
    check_hyper: Callable[[dict[str, float]], None] = lambda hyper: None  # refuses hyperparameter values before a run
    check_channel: Callable[[str, bool, float, bool], None] | None = None  # (name, unbiased, ω, remembers), likewise
    sample_noise: SampleNoise | None = None  # uploads depend on samples through this alone


class Diagnostics(NamedTuple):
    """What a method reports at an evaluation, beyond scores.

    ``log`` is about the server's state. The rest is made on request only, as it costs a pass: ``measure`` runs on every
    training client and is averaged with ``weight``, by default the clients' sizes, and ``conclude`` makes named scalars
    of that average. ``probe`` is for what is too costly to measure everywhere: it runs on a few clients.
    """

    log: Callable[[Server], dict[str, jax.Array]] | None = None
    measure: Callable[[View, Tree, ClientData, Key], Tree] | None = None
    conclude: Callable[[Server, Tree], dict[str, jax.Array]] = lambda server, mean: mean
    probe: Callable[[View, Tree, ClientData, Key], dict[str, jax.Array]] | None = None
    weight: Callable[[ClientData], jax.Array] = lambda data: data.size


class Algorithm(NamedTuple):
    """A federated method."""

    name: str
    server: ServerSide
    client: ClientSide
    deployment: Deployment
    setup: Setup | None = None
    traits: Traits = Traits()
    diagnostics: Diagnostics = Diagnostics()

    def join(self, view: View, data: ClientData, key: Key) -> Tree:
        """The private state of a client that did not take part in training."""
        return (self.deployment.join or self.client.init)(view, data, jax.random.fold_in(key, 0))

    def deploy(self, view: View, state: Tree, data: ClientData, key: Key) -> Tree:
        """The model that a client uses."""
        return self.deployment.personalize(view, state, data, jax.random.fold_in(key, 1))

    def release(self, server: Server, key: Key) -> View:
        """What a client is sent to make its model."""
        return (self.deployment.release or self.server.broadcast)(server, key)
