"""A silo's answers: everything is computed from its own rows and its own folder, and a letter at a time.

Every letter may start a process of its own, so nothing is remembered but what is on the disk. With a secure sum in the
study, uploads, evaluations, answers before round 1 and a table's counts and moments leave masked (`masks`), or not at
all, whatever the server asks for.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import majorant
from majorant._words import some
from majorant.app._fingerprint import data_digest
from majorant.app.config import to_toml
from majorant.app.files import atomic_write_text, make_folder
from majorant.app.flower.letters import (
    Agreement,
    Contribution,
    Count,
    Evaluation,
    Facts,
    Hello,
    Introduction,
    Letter,
    Lost,
    Readiness,
    Received,
    Sums,
    Task,
    read_facts,
)
from majorant.app.flower.masks import STEPS, Masks, step_of
from majorant.app.flower.own_rows import own_data, stable_rate, surveyed
from majorant.app.flower.states import NoState, Place
from majorant.app.flower.study import NodeSettings, Study, differences, parse_study, read_study, settings_of
from majorant.app.folders import claimed
from majorant.app.personal_model import save_model
from majorant.core import Tree, View
from majorant.data.federated import FederatedData
from majorant.data.tabular.answers import TableAnswer, answer_of
from majorant.data.tabular.encoding import Encoding
from majorant.data.tabular.summed_answers import discreet, own_part
from majorant.engines.deployment import PersonalModel
from majorant.engines.programs import enable_compilation_cache
from majorant.engines.remote.client import Own, own_samples, programs
from majorant.engines.remote.shapes import Messages, messages_of
from majorant.engines.remote.sums import answer_numbers, evaluation_numbers
from majorant.engines.remote.wire import Raw, Refused, decode, encode, leaves_of
from majorant.exchange.federation import Federation
from majorant.exchange.secagg import Stopped
from majorant.exchange.secure_sum import Masked
from majorant.models.base import Spec

Rows = Callable[[NodeSettings], FederatedData]
PROBLEMS = "problems.txt"
LOG = logging.getLogger("flwr")
KEY = jax.ShapeDtypeStruct((2,), jnp.uint32)  # a client's own key, as numbers


class Busy(Exception):
    """Another process answers an earlier letter."""


class Work(NamedTuple):
    """What a silo computes with."""

    place: Place
    agreement: Agreement
    federation: Federation
    messages: Messages
    data: FederatedData
    own: Own


class Silo:
    """One silo: a study, what its owner says of it, and where its rows come from."""

    def __init__(self, study: Study, node: dict[str, Any], rows: Rows | None = None) -> None:
        self.study, self.rows = study, rows
        known = {k.replace("-", "_"): v for k, v in node.items() if k in NodeSettings.model_fields}
        self.node: NodeSettings = settings_of(NodeSettings, known, "the silo's node configuration")
        self.secure = study.secure
        enable_compilation_cache()

    def answer(self, letter: Letter) -> Letter:
        """The answer to a letter; a complaint of the silo is an answer, too."""
        tasks = {
            "hello": self.introduce,
            "count": self.count,
            **dict.fromkeys(STEPS, self.take_step),
            "prepare": self.prepare,
            "welcome": self.begin,
            "round": self.contribute,
            "evaluate": self.evaluate,
            "join": self.join,
        }
        try:
            if letter.kind not in tasks:
                raise Refused(f"there are no letters of the kind {letter.kind[:40]!r}")
            with self.study.config.arithmetic():
                return tasks[letter.kind](letter)
        except Busy as busy:
            return Letter("busy", {"name": self.node.name, "reason": str(busy)})
        except NoState as lost:
            return told(Lost(run=str(letter.facts.get("run")), reason=str(lost)), "lost")
        except (ValueError, OSError, Stopped) as error:
            return Letter("refused", {"name": self.node.name, "reason": str(error)})

    def introduce(self, letter: Letter) -> Letter:
        """Who the silo is and what its data is like: counts, categories and moments of a table, never a row."""
        hello = read_facts(Hello, letter, "the server")
        self.check_study(parse_study(hello.settings))
        about: dict[str, Any] = {"name": self.node.name, "version": majorant.__version__}
        if self.rows is None and self.study.config.is_table:
            answer = self.table_answer()
            about["table"] = answer if self.secure is None else discreet(answer)
        else:
            data = self.own_data(None)
            about |= {"features": list(data.spec.features), "classes": list(data.classes)}
        return told(Introduction(**about), "introduction")

    def take_step(self, letter: Letter) -> Letter:
        """A step of a secure sum, before or after a vector leaves."""
        wanted = step_of(letter)
        place = Place(self.node.state, wanted.run, self.node.name)
        if letter.kind == "keys" and wanted.round == 0:
            place.make()
        with self.claimed(place):
            return told(STEPS[letter.kind][1](self.masks(place), wanted), letter.kind)

    def masks(self, place: Place) -> Masks:
        """The silo's secure sums."""
        if self.secure is None:
            raise Refused("the study has no secure sum")
        return Masks(place, self.secure)

    def exact(self, place: Place, values: Any, secret: Received | None) -> list[Raw]:
        """Numbers as they leave in a secure sum."""
        if secret is None:
            raise Refused(f"the study has a secure sum: {self.node.name!r} tells nothing of its own outside of it")
        data = self.masks(place).exact(values, secret)
        return [Raw("uint8", (len(data),), data)]

    def count(self, letter: Letter) -> Letter:
        """Counts and moments of the silo's table, masked."""
        asked = read_facts(Count, letter, "the server")
        place = Place(self.node.state, asked.run, self.node.name)
        with self.claimed(place):
            own = own_part(self.table_answer(), asked.asked)
            return Letter("counted", {"sum": asked.secret.sum}, self.exact(place, own, asked.secret))

    def check_study(self, theirs: Study) -> None:
        """A silo takes part in the study that it was given, and with a copy of its own in no other."""
        own = self.study if self.node.study is None else read_study(self.node.study)
        different = differences(own, theirs)
        if different:
            raise ValueError(
                f"{self.node.name!r} was given another study than the server ({'; '.join(different)}): all parties need"
                " the same study.toml"
            )

    def own_data(self, encoding: Encoding | None) -> FederatedData:
        """The silo's samples."""
        with self.in_private():
            return self.rows(self.node) if self.rows is not None else own_data(self.study.config, self.node, encoding)

    def table_answer(self) -> TableAnswer:
        """What may be said of the silo's table."""
        with self.in_private():
            return answer_of(surveyed(self.study.config, self.node))

    @contextlib.contextmanager
    def in_private(self) -> Iterator[None]:
        """What is wrong with a silo's own data may quote its rows: its owner is told, the server only that it is so."""
        path = Path(self.node.state) / PROBLEMS
        try:
            yield
        except (ValueError, OSError) as error:
            make_folder(path.parent)
            atomic_write_text(path, f"{error}\n")
            LOG.error("majorant: %r cannot use its data: %s", self.node.name, error)
            reason = f"it cannot use its own data; why, its owner finds in its log, and in {PROBLEMS} of its folder"
            raise ValueError(reason) from None
        path.unlink(missing_ok=True)

    def prepare(self, letter: Letter) -> Letter:
        """Reads the silo's rows by what was agreed on, and remembers that."""
        agreement = read_facts(Agreement, letter, "the server")
        encoding = agreement.table()
        data = self.own_data(encoding)
        if list(data.spec.features) != agreement.features or list(data.classes) != agreement.classes:
            unknown = [label for label in data.classes if label not in agreement.classes]
            raise ValueError(
                f"{self.node.name!r} has samples of shape {list(data.spec.features)} and {len(data.classes)} classes"
                f"{f' ({some(unknown)} unknown to the others)' if unknown else ''}; {agreement.features} and the "
                f"{len(agreement.classes)} classes {some(agreement.classes, 10)} were agreed on"
            )
        if not len(data.train.y):
            raise ValueError(f"{self.node.name!r} has no training rows: it cannot take part")
        place = Place(self.node.state, agreement.run, self.node.name)
        place.remember(agreement, data_digest(data, encoding))
        if self.secure is not None:
            return told(Readiness(), "ready")
        step = None
        if self.study.make is None:
            from majorant.app.build import build_algorithm

            model = build_algorithm(self.study.config, data.spec, self.study.flower.clients)[0]
            step = stable_rate(self.study.config, model, data)
        sizes = {part: len(getattr(data, part).y) for part in ("train", "validation", "test")}
        return told(Readiness(**sizes, step=step), "ready")

    @contextlib.contextmanager
    def claimed(self, place: Place) -> Iterator[None]:
        """The silo's folder of a run, kept for one process."""
        if not place.folder.is_dir():
            raise NoState(f"there is no folder {place.folder}")
        with contextlib.ExitStack() as stack:
            try:
                stack.enter_context(claimed(place.folder))
            except ValueError as error:
                raise Busy(str(error)) from None
            yield

    @contextlib.contextmanager
    def at_work(self, run: str) -> Iterator[Work]:
        """Everything that a letter needs."""
        place = Place(self.node.state, run, self.node.name)
        with self.claimed(place):
            agreement, digest = place.agreement()
            encoding = agreement.table()
            data = self.own_data(encoding)
            if data_digest(data, encoding) != digest:
                raise ValueError(f"the rows of {self.node.name!r} are others than when the run began: restore the file")
            federation = self.study.federation(Spec(tuple(agreement.features), len(agreement.classes)))
            own = own_samples(data, agreement.slot)
            yield Work(place, agreement, federation, messages_of(federation, own.train), data, own)

    def begin(self, letter: Letter) -> Letter:
        """The silo's first state, and its answer to the method's set-up question."""
        task = read_facts(Task, letter, "the server")
        with self.at_work(task.run) as work:
            view, key = sent_by_server(work.messages.view, letter)
            held, answer = self.programs(work).start(view, key, work.own.train)
            work.place.keep(task.round, held)
            if self.secure is None:
                arrays = encode(jax.tree.leaves(answer), work.messages.answers)
            elif task.round:  # it begins anew: nothing of it is in a sum
                arrays = []
            else:
                sizes = [len(getattr(work.data, part).y) for part in ("train", "validation", "test")]
                arrays = self.exact(work.place, [*sizes, *answer_numbers(answer)], task.secret)
            return told(Task(run=task.run, round=task.round, delivered=task.delivered), "begun", arrays)

    def contribute(self, letter: Letter) -> Letter:
        """The silo's part of a round. What it holds afterwards waits on its disk until the server has said that the
        message arrived."""
        task = read_facts(Task, letter, "the server")
        with self.at_work(task.run) as work:
            view, key = sent_by_server(work.messages.view, letter)
            held = work.place.load(task.delivered, work.messages.held)
            leaving = self.programs(work).update(view, own_key(work, key), held, work.own.train)
            sound = bool(leaving.sound)
            if sound:
                work.place.keep(task.round, leaving.delivered)
            travels = np.asarray(leaving.travels).tolist()
            about = Contribution(run=task.run, round=task.round, sound=sound, travels=travels)
            if not sound:
                return told(about, "upload")
            if work.messages.secret:
                return told(about, "upload", self.hidden(work, leaving.message, task.secret))
            message = jax.tree.leaves(leaving.message) or jax.tree.leaves(leaving.upload.value)
            arrays = encode(message, work.messages.value)
            arrays += encode(jax.tree.leaves((leaving.upload.weight, leaving.upload.info)), work.messages.rest)
            return told(about, "upload", arrays)

    def hidden(self, work: Work, message: Masked, secret: Received | None) -> list[Raw]:
        """An upload as it leaves in a secure sum: residues under masks, of numbers and of the weight."""
        if secret is None:
            raise Refused(f"the study has a secure sum: {self.node.name!r} sends no upload outside of it")
        vector = np.append(np.asarray(message.numbers), np.asarray(message.weight))
        masked = self.masks(work.place).masked(vector, work.messages.moduli, secret)
        return encode([masked[:-1], masked[-1]], work.messages.value)

    def evaluate(self, letter: Letter) -> Letter:
        """Makes and keeps the silo's own model, and says how it does on the silo's own samples, in sums."""
        task = read_facts(Task, letter, "the server")
        with self.at_work(task.run) as work:
            view, key = sent_by_server(work.messages.released, letter)
            held = work.place.load(task.delivered, work.messages.held)
            model = self.programs(work).model(view, key, held.state, work.own.train)
            measured = self.programs(work).measure(view, key, held.state, work.own.train) if task.diagnostics else ()
            facts = self.scored(work, task, model)
            if self.secure is None or self.tells_each(task):
                return told(facts, "evaluation", encode_any(measured))
            numbers = evaluation_numbers(sums_of(facts), measured)
            silent = facts.model_copy(update={"sums": {}})
            return told(silent, "evaluation", self.exact(work.place, numbers, task.secret))

    def join(self, letter: Letter) -> Letter:
        """A model for a silo that did not take part in training, from its own samples alone."""
        task = read_facts(Task, letter, "the server")
        with self.at_work(task.run) as work:
            view, key = sent_by_server(work.messages.whole, letter)
            facts = self.scored(work, task, self.programs(work).join(view, key, work.own.train))
            return told(facts.model_copy(update={"sums": {}}), "evaluation")

    def tells_each(self, task: Task) -> bool:
        """Whether what is a single silo's may be told: where the server asks, and the silo's own study allows it."""
        return task.each and self.study.flower.per_client_scores

    def scored(self, work: Work, task: Task, model: Tree) -> Evaluation:
        """Keeps a model, and scores it."""
        scores = jax.tree.map(np.asarray, self.programs(work).scores(model, work.own))
        save_model(self.personal(work, model), work.place.model)
        losses = work.federation.algorithm.deployment.losses is not None
        power = 1 if losses or work.agreement.classes else 2  # squared errors add up, their roots do not
        sums = {}
        for part in ("train", "validation", "test"):
            count = len(getattr(work.data, part).y)
            if f"{part}_loss" in scores:
                total = lambda name, power=1, part=part, n=count: finite(n * float(scores[f"{part}_{name}"]) ** power)
                sums[part] = Sums(count=count, loss=total("loss"), score=total("score", power))
        weights = scores["pi"].tolist() if self.tells_each(task) and "pi" in scores else None
        return Evaluation(run=task.run, round=task.round, sums=sums, weights=weights)

    def personal(self, work: Work, model: Tree) -> PersonalModel:
        """A model as it is kept on the silo, where ``majorant predict`` uses it."""
        agreement, data = work.agreement, work.data
        encoding = agreement.table()
        origin: dict[str, Any] = {"client": self.node.name, "samples": len(data.train.y), "run": agreement.run}
        origin["in_bytes"] = data.train.x.dtype == np.uint8
        origin |= {"clients": agreement.clients, "seed": self.study.config.seed}
        if self.study.make is None:
            origin["config"] = to_toml(self.study.config)
        shape = (data.classes, data.spec.features, data.target_scale, encoding, origin)
        return PersonalModel(work.federation.algorithm, model, *shape)

    def programs(self, work: Work) -> Any:
        """What the silo computes."""
        return programs(work.federation, len(work.agreement.classes))


def told(facts: Facts, kind: str, arrays: list[Any] | None = None) -> Letter:
    """A letter with facts of a kind."""
    return Letter(kind, facts.model_dump(mode="json"), arrays or [])


def sent_by_server(expected: View, letter: Letter) -> tuple[View, jax.Array]:
    """The view and the silo's own key in a letter, checked against what the method sends."""
    leaves = [*leaves_of(expected), *leaves_of(KEY)]
    *arrays, numbers = decode(letter.arrays, leaves, f"a {letter.kind!r} letter of the server")
    view = jax.tree.unflatten(jax.tree.structure(expected), arrays)
    return view, jax.random.wrap_key_data(jnp.asarray(numbers))


def own_key(work: Work, key: jax.Array) -> jax.Array:
    """The key that a silo draws from in a round: the server's or, where noise hides something, one of the silo's own.

    Whoever knows the key of noise can subtract it. It is the same whenever the silo is asked for the same round.
    """
    if work.federation.guarantee is None and work.federation.algorithm.traits.sample_noise is None:
        return key
    mixed = hashlib.sha256(work.place.secret() + np.asarray(jax.random.key_data(key)).tobytes()).digest()
    return jax.random.wrap_key_data(jnp.asarray(np.frombuffer(mixed[:8], "<u4")))


def encode_any(tree: Tree) -> list[Any]:
    """A tree of arrays whose shapes the receiver knows."""
    arrays = [np.asarray(leaf) for leaf in jax.tree.leaves(tree)]
    return encode(arrays, leaves_of(arrays))


def sums_of(facts: Evaluation) -> dict[str, tuple[int, float | None, float | None]]:
    """Counts and sums of an evaluation, by part."""
    return {part: (own.count, own.loss, own.score) for part, own in facts.sums.items()}


def finite(value: float) -> float | None:
    """A number, None where it is not finite."""
    return value if np.isfinite(value) else None
