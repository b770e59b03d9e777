"""The rules of a conversation, with what the log holds beside them."""

from __future__ import annotations

from dataclasses import dataclass

from ...states.policy import Policy


@dataclass(frozen=True)
class ChosenRules:
    """Rules as the log will hold them. `chose_models`: the application chose the models, so the conversation does not
    follow those of its engine. `filled_models`: the models were filled in, because the application named none now.
    `chose_profiles` and `filled_profiles` say the same of the profiles."""

    policy: Policy
    chose_models: bool
    chose_profiles: bool
    filled_models: bool
    filled_profiles: bool
