"""What every list of conversations shows of one: whose it is, what it is called, and its place among agents.

These fields are declared here alone. The first event of a log brings them, the context keeps them, a store has a column
for each, and summaries, HTTP and the handles on a conversation show them: each of these is a header with more. So a
field that is added here is stored and shown wherever a header is.
"""

from __future__ import annotations

from typing import Any, Self

from pydantic import Field

from .policy import Policy
from .roles import Role
from .values.acts import Metadata, Owner, Schedule, Title
from .values.output import GivenOutput
from .values.value import CURRENT_REVISION, RequestText, Revision, Text, Value


class ChosenHeader(Value):
    """What an application chooses of the header of a new conversation.

    `owner`, `title` and `metadata` are the application's own. `works_for` is the conversation for whose user a
    background agent works.
    """

    owner: Owner | None = None
    title: Title | None = None
    metadata: Metadata = Field(default_factory=dict)
    role: Role = "foreground"
    works_for: Text | None = None

    @property
    def chosen_fields(self) -> dict[str, Any]:
        """These fields alone. `Pure.`"""
        return {name: getattr(self, name) for name in ChosenHeader.model_fields}


class Header(ChosenHeader):
    """The header of a conversation. `parent` is the conversation whose turn started a sub-agent."""

    parent: Text | None = None

    @property
    def header_fields(self) -> dict[str, Any]:
        """The fields of the header alone, for another value that has them. `Pure.`"""
        return {name: getattr(self, name) for name in Header.model_fields}

    def with_details(self, title: str | None, metadata: dict[str, Any] | None) -> Self:
        """Return this with another title and other metadata; None leaves what there is. `Pure.`"""
        given = {"title": title, "metadata": metadata}
        return self.replace(**{name: value for name, value in given.items() if value is not None})


class Setup(Header):
    """What a conversation is given when it begins, and keeps until something changes it: its header, its system prompt,
    and its rules.

    `chose_models` says that the application chose the models of the policy; otherwise the conversation follows the
    models of its engine. `chose_profiles` says the same of the profiles. `tools` are the names of the tools that the
    conversation may use, or None for all that its engine has. `depth` is how many agents are above this one: 0 where no
    turn of another agent started it. `revision` is the revision of the machine under which the log began. `schedule`
    says when the conversation wakes up; a sub-agent has none. `output` is the form of its answers, or None for texts.
    """

    system: RequestText = ""
    policy: Policy = Policy()
    chose_models: bool = False
    chose_profiles: bool = False
    tools: tuple[Text, ...] | None = None
    depth: int = Field(default=0, ge=0)
    revision: Revision = CURRENT_REVISION
    schedule: Schedule | None = None
    output: GivenOutput | None = None
