"""Takes the bytes of files out of a history that was given in OpenAI's chat format.

Other programs write the files of a history into its messages. They are stored like every other file, and a reference
stands in their place. What cannot be used is left out, which the repairs tell, as of everything else in a history that
no provider would accept.
"""

from __future__ import annotations

from ..states.errors import InvalidInput
from ..states.policy import FileRules
from ..states.values.files import FileReference
from .files import DEFAULT_RULES, File, PreparedFile, Redact, bytes_of_data_url, prepare_one


class TakenFiles:
    """The files that were taken out of a history, each once. Hand `take` to `repair_history`."""

    def __init__(self, rules: FileRules = DEFAULT_RULES, redact: Redact | None = None) -> None:
        self._rules = rules
        self._redact = redact
        self._taken: dict[str, PreparedFile] = {}

    @property
    def files(self) -> tuple[PreparedFile, ...]:
        """The files that are to be stored before the conversation begins."""
        return tuple(self._taken.values())

    def take(self, url: str, name: str) -> FileReference:
        """Return the reference to the file in this data: URL. Its bytes say what it is; what it is declared as counts
        where they leave that open. Raises `InvalidInput`."""
        try:
            prepared = prepare_one(File(url, name), self._rules, self._redact, "it")
        except InvalidInput:
            data = bytes_of_data_url(url, self._rules, "it")
            prepared = prepare_one(File(data, name), self._rules, self._redact, "it")
        self._taken[prepared.reference.sha256] = prepared
        return prepared.reference
