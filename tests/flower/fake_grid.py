"""A grid without a network: it hands messages to the ClientApp in this process, and can be told to spoil them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from flwr.app import Context, Message, RecordDict
from flwr.supercore.inflatable.inflatable_object import get_all_nested_objects
from flwr.supercore.inflatable.inflatable_utils import inflate_object_from_contents
from flwr.supercore.task_identity import TaskIdentity

Spoil = Callable[[int, Message, Callable[[], Message]], Message | None]


class FakeGrid:
    """Nodes with a configuration each; ``spoil`` is given a node, a message and a way to have it answered."""

    def __init__(self, app: Any, nodes: dict[int, dict[str, Any]], spoil: Spoil | None = None) -> None:
        self.app, self.nodes, self.spoil = app, nodes, spoil or (lambda node, message, answer: answer())
        TaskIdentity.run_id, TaskIdentity.node_id, TaskIdentity.task_id = 1, 1, 1  # as Flower's own processes have
        self.waiting: dict[str, Message] = {}
        self.sent = 0
        self.away: set[int] = set()

    def get_node_ids(self) -> list[int]:
        return [node for node in self.nodes if node not in self.away]

    def push_messages(self, messages: Iterable[Message]) -> list[str]:
        numbers = []
        for message in messages:
            self.sent += 1
            numbers.append(f"message-{self.sent}")
            message.metadata.__dict__["_message_id"] = numbers[-1]
            self.waiting[numbers[-1]] = message
        return numbers

    def pull_messages(self, numbers: Iterable[str]) -> list[Message]:
        found = []
        for number in numbers:
            if number in self.waiting:
                message = self.waiting.pop(number)
                node = message.metadata.dst_node_id
                answered = self.spoil(node, message, lambda m=message, n=node: self.answer(m, n))
                if answered is not None:
                    answered.metadata.__dict__["_src_node_id"] = node
                    answered.metadata.__dict__["_reply_to_message_id"] = number
                    found.append(answered)
        return found

    def answer(self, message: Message, node: int) -> Message:
        """What a ClientApp says, after a journey through Flower's own bytes in both directions."""
        context = Context(1, node, self.nodes[node], RecordDict(), {})
        message.content = travelled(message.content)
        reply = self.app(message, context)
        if reply.has_content():
            reply.content = travelled(reply.content)
        return reply


def travelled(content: RecordDict) -> RecordDict:
    """A record as Flower takes it apart and puts it together again."""
    objects = {number: each.deflate() for number, each in get_all_nested_objects(content).items()}
    return inflate_object_from_contents(content.object_id, objects)
