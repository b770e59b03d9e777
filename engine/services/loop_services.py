"""What the loops of one engine share."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field

from ...effects.clock import Clock
from ...states.events import Event
from ..choices.adoption import Adoption
from ..intake.immediate_start import ImmediateStart
from ..outbox import OutboxTargets
from ..ports import Dispatcher, LoopOwner, Observer, RequestObserver
from ..projections.tree_feed import TreeFeed
from ..recovery import PresentDeclarations
from .approved_arguments import ApprovedArguments
from .event_redactor import EventRedactor


@dataclass(frozen=True)
class LoopServices:
    """What every loop of an engine works with.

    `dispatcher` starts the effects of its steps, and `outbox` tells which of them are stored until they have arrived.
    `adoption` changes a conversation at rest to the models and profiles of its engine. `owner` is told what becomes of
    the loop, and `observers` see its steps. `kept_updates` are kept for those who watch a conversation, and `tree`
    shows the updates of all conversations. `approved_arguments` checks what people give calls, and `immediately` starts
    the handling of events. `declarations` are those of the tools that the engine has now. `read_only` has requests
    refused.
    """

    dispatcher: Dispatcher
    outbox: OutboxTargets
    clock: Clock
    adoption: Adoption
    owner: LoopOwner
    observers: Sequence[Observer]
    kept_updates: int
    redactor: EventRedactor
    tree: TreeFeed
    approved_arguments: ApprovedArguments
    declarations: PresentDeclarations
    read_only: bool = False
    immediately: ImmediateStart = field(default_factory=ImmediateStart)

    request_observers: tuple[RequestObserver, ...] = field(init=False)
    """The observers that see requests."""

    def __post_init__(self) -> None:
        """Find the observers that see requests, once. A cached property would make all fields slow to read."""
        found = tuple(observer for observer in self.observers if isinstance(observer, RequestObserver))
        object.__setattr__(self, "request_observers", found)

    @contextmanager
    def observed(self, conversation_id: str, event: Event) -> Iterator[None]:
        """Return a context that lasts while somebody waits for this request. The observers see it, and its error."""
        with ExitStack() as contexts:
            for observer in self.request_observers:
                contexts.enter_context(observer.asked(conversation_id, event))
            yield
