"""The generic ClientApp and ServerApp: a study is all that they need.

A Flower app is two files of one line each::

    app = client_app(Path(__file__).with_name("study.toml"))
    app = server_app(Path(__file__).with_name("study.toml"))

A method that was made in Python goes in by ``make``, a function of the problem's shape and the number of clients that
all parties have the same of.
"""

from __future__ import annotations

import logging
import traceback
from collections.abc import Callable, Collection, Iterable
from pathlib import Path
from typing import Any

from flwr.app import Context, Message
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp

from majorant.app.files import atomic_write_text, strict_json
from majorant.app.flower.coordinator import Coordinator
from majorant.app.flower.ledger import Ledger
from majorant.app.flower.letters import Letter, one_line
from majorant.app.flower.office import GARBAGE, KINDS, POLL, Failed, Reply
from majorant.app.flower.post import from_record, reply, to_record
from majorant.app.flower.silo import Rows, Silo
from majorant.app.flower.study import Study, read_study
from majorant.app.folders import check_folder, working_in
from majorant.core import Algorithm
from majorant.engines.remote.wire import Refused
from majorant.models.base import Spec

Make = Callable[[Spec, int], Algorithm]
LOG = logging.getLogger("flwr")


def client_app(study: Path | Study, *, make: Make | None = None, rows: Rows | None = None) -> ClientApp:
    """The ClientApp of a study; ``rows`` gives a silo's samples where they are no table."""
    app = ClientApp()

    def answer(message: Message, context: Context) -> Message:
        silo = Silo(loaded(study, make), dict(context.node_config), rows)
        try:
            letter = from_record(message.content)
        except Refused as refusal:
            return reply(Letter("refused", {"name": silo.node.name, "reason": str(refusal)}), message)
        try:
            return reply(silo.answer(letter), message)
        except Exception as error:  # Flower would tell the server its text, which may quote rows
            LOG.exception("majorant: %r failed", silo.node.name)
            raise RuntimeError(f"{type(error).__name__}: {silo.node.name!r} failed, and its log says why") from None

    app.query()(answer)
    app.train()(answer)
    app.evaluate()(answer)
    return app


def server_app(study: Path | Study, *, make: Make | None = None) -> ServerApp:
    """The ServerApp of a study: its run configuration says where the run folder is (``out``), and whether to resume."""
    app = ServerApp()

    @app.main()
    def main(grid: Grid, context: Context) -> None:
        out, resume = Path(str(context.run_config["out"])).expanduser(), bool(context.run_config.get("resume", False))
        status = str(context.run_config.get("status", ""))
        say = lambda **facts: atomic_write_text(status, strict_json(facts)) if status else None
        try:
            serve(loaded(study, make), GridCarrier(grid), out, resume=resume)
        except BaseException as error:
            say(state="failed", reason=str(error) or type(error).__name__, details=traceback.format_exc())
            raise
        say(state="finished")

    return app


def serve(study: Study, carrier: Any, out: Path, *, resume: bool = False, poll: float = POLL) -> Any:
    """Runs a study into a folder: a new one, or with ``resume`` one that has a checkpoint."""
    check_folder(out, resume=resume)
    ledger = Ledger(out, study)

    def tell(line: str) -> None:
        line = one_line(line)  # silos' own words may be in it
        LOG.info("majorant: %s", line)
        ledger.tell(line)

    with working_in(out, lambda: ledger.begun, resume=resume):
        return Coordinator(study, carrier, ledger, tell, poll=poll).run()


def loaded(study: Path | Study, make: Make | None) -> Study:
    """A study with its method."""
    found = study if isinstance(study, Study) else read_study(study)
    return found if make is None else found._replace(make=make)


class GridCarrier:
    """Flower's grid as a carrier of letters."""

    def __init__(self, grid: Grid) -> None:
        self.grid = grid

    def nodes(self) -> set[int]:
        """Those that are connected."""
        return set(self.grid.get_node_ids())

    def send(self, node: int, letter: Letter) -> str:
        """Sends a letter."""
        message = Message(to_record(letter), node, KINDS.get(letter.kind, "query"))
        return next(iter(self.grid.push_messages([message])))

    def collect(self, numbers: Collection[str]) -> Iterable[tuple[str, int, Reply]]:
        """What has come of some letters."""
        if not numbers:
            return
        for message in self.grid.pull_messages(list(numbers)):
            number, node = message.metadata.reply_to_message_id, message.metadata.src_node_id
            if message.has_error():
                yield number, node, Failed(one_line(message.error.reason))
                continue
            try:
                yield number, node, from_record(message.content)
            except Refused as refusal:
                yield number, node, Letter(GARBAGE, {"reason": str(refusal)})
