"""How an application configures an MCP server and its tools.

A server is a program that runs beside the engine (`command`) or an address on the web (`url`). What it says about its
own tools decides nothing by itself: whether a call may run twice, or needs the approval of a person, is said here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, ClassVar, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator
from pydantic_core import PydanticCustomError

from ...states.values.messages import Approver

McpCrashContract = Literal["pure", "idempotent", "at_most_once"]
"""What may happen to a call that was running when the process died. A server cannot be asked what became of a call, so
the contract `reconcile` is not among these."""

Seconds = Annotated[float, Field(gt=0, allow_inf_nan=False)]


class _McpSettings(BaseModel):
    """Settings that are checked where they are made, and whose values never stand in an error."""

    model_config: ClassVar[ConfigDict] = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)


class McpTool(_McpSettings):
    """What holds for one tool of a server. None stands for what holds for the server.

    `enabled=False` keeps the tool from being offered. `exclusive` says whether it runs alone in its round; only an
    exclusive tool may ask the user.
    """

    crash: McpCrashContract | None = None
    approval: bool | None = None
    approval_by: Approver | None = None
    timeout: Seconds | None = None
    exclusive: bool | None = None
    enabled: bool = True


def _check_url(url: str | None) -> str | None:
    if url is None or url.startswith(("http://", "https://")):
        return url
    raise PydanticCustomError("mcp_url", "the address of an MCP server begins with http:// or https://")


class McpServer(_McpSettings):
    """An MCP server whose tools are offered as `<server>:<tool>`.

        McpServer(command="uvx", args=["mcp-server-git"])
        McpServer(url="https://tools.example.com/mcp", headers={"Authorization": "Bearer …"})

    - `command`, `args`, `env`, `cwd`: the program to start, which speaks MCP on its standard input and output. It sees
      the variables in `env` and few others (`PATH`, `HOME`, `USER`, …), so the keys of the engine stay in the engine.
    - `url`, `headers`: the address of a server that speaks streamable HTTP, and what is sent with each request.
    - `timeout`: seconds that a call may take. `connect_timeout`: seconds to start the server and list its tools.
    - `protocol`: `newest` is the newest version that the server knows. `legacy` is one from before 2026; only in those
      may a server ask the user in the middle of a call. `auto` is `legacy` where the server may ask and knows such a
      version, else `newest`.
    - `crash`: what may happen to a call that was running when the process died, as for other tools.
    - `approval`: whether a person must approve each call. `approval_by` says who may, as for other tools; where it is
      given, each call needs approval unless `approval` of its tool says otherwise.
    - `tools`: what differs for single tools, by their names on the server.
    - `trusted`: the hints of the server count. A tool that it calls read-only is `pure`, and one that it calls
      idempotent is `idempotent`, unless `crash` or `tools` says otherwise. Its results are checked against its
      schemas for them: the SDK does that, and another server could use it to stop the process.
    - `elicitation`: the server may ask the user while a call runs. Each of its tools then runs alone in its round.

    Raises `pydantic.ValidationError` unless exactly one of `command` and `url` is given.
    """

    command: str | None = Field(default=None, min_length=1)
    args: Sequence[str] = ()
    env: Mapping[str, str] = Field(default_factory=dict, repr=False)
    cwd: Path | str | None = None
    url: Annotated[str | None, AfterValidator(_check_url)] = Field(default=None, repr=False)
    headers: Mapping[str, str] = Field(default_factory=dict, repr=False)
    timeout: Seconds = 60.0
    connect_timeout: Seconds = 30.0
    protocol: Literal["auto", "legacy", "newest"] = "auto"
    crash: McpCrashContract | None = None
    approval: bool = False
    approval_by: Approver | None = None
    tools: Mapping[str, McpTool] = Field(default_factory=dict)
    trusted: bool = False
    elicitation: bool = True

    @model_validator(mode="after")
    def _speaks_one_way(self) -> McpServer:
        if (self.command is None) == (self.url is None):
            raise PydanticCustomError("mcp_server", "an MCP server takes either a command or a url")
        if self.url is not None and (self.args or self.env or self.cwd):
            raise PydanticCustomError("mcp_server", "args, env and cwd belong to a command, not to a url")
        if self.command is not None and self.headers:
            raise PydanticCustomError("mcp_server", "headers belong to a url, not to a command")
        return self

    def approver_of(self, tool: str) -> Approver | None:
        """Return who must approve each call of this tool of the server; None if nobody must. `Pure.`"""
        own = self.tools.get(tool, McpTool())
        by = own.approval_by or self.approval_by
        needs_approval = own.approval if own.approval is not None else self.approval or by is not None
        return (by or "user") if needs_approval else None
