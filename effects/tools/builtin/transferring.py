"""The built-in tool by which a model hands the conversation over to another profile."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from ....states.values.acts import Transfer
from ..declaration import tool
from ..tool_error import ToolError

NO_PROFILE = "profile is required"


@tool(exclusive=True, acts=("transfer",), crash="pure")
async def transfer_to(
    profile: Annotated[str, Field(description="The name of the profile, as the instructions list it")],
) -> Transfer:
    """Go on by another profile, with the same user and the same conversation.

    Use it when the instructions list a profile that suits what the user needs now better than the present one. The
    change holds from your next step on, until it is made again.
    """
    if not profile.strip():
        raise ToolError(NO_PROFILE)
    return Transfer(profile=profile.strip())
