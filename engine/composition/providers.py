"""What an application gives to an engine beside its store, models, tools and channels."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from inspect import isclass
from typing import TYPE_CHECKING, Any, TypeVar

from ...effects.location import Location, LocationSource
from ...effects.mcp.server import McpServer
from ...effects.recall.ports import DocumentSource, Embed
from ...effects.redaction.redaction import Redaction
from ...effects.tools.catalogue import RECALL_CONVERSATION, names_of
from ...states.errors import ConfigurationError
from ...states.policy import ModelSpec, Profile

if TYPE_CHECKING:
    from ..settings import Settings

V = TypeVar("V")


@dataclass(frozen=True)
class Providers:
    """What the rules of a conversation may need: profiles, redaction, location, documents, embeddings, MCP servers."""

    profiles: tuple[Profile, ...] = ()
    redaction: Redaction | None = None
    location: LocationSource | None = None
    documents: DocumentSource | None = None
    embed: Embed | None = None
    mcps: Mapping[str, McpServer] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        settings: Settings,
        *,
        profiles: Iterable[Profile],
        redaction: Redaction | None,
        location: LocationSource | Location | str | None,
        documents: DocumentSource | None,
        embed: Embed | None,
        mcps: Mapping[str, McpServer] | None,
    ) -> Providers:
        """Return what was given, with the profiles and the MCP servers of the settings. What is given replaces what
        the settings have under the same name. Raises `ConfigurationError` for what cannot be what it is given as."""
        if redaction is not None and not isinstance(redaction, Redaction):
            raise ConfigurationError("The redaction of an engine must be a Redaction.")
        return cls(
            _narrowed(_with_profiles_of(settings, _profiles(profiles)), settings.profile_allowed_tools),
            redaction,
            _function("location", _fixed(location) if isinstance(location, Location | str) else location),
            _function("documents", documents),
            _function("embed", embed),
            {**settings.mcps, **_servers(mcps)},
        )


def models_named(settings: Settings, profiles: Iterable[Profile]) -> Iterator[ModelSpec]:
    """Yield the models that profiles and settings name."""
    yield from (profile.model for profile in profiles if profile.model is not None)
    for name in (settings.llm_profile_select_model, settings.llm_tools_model):
        if name is not None:
            yield ModelSpec(name=name)


def _profiles(given: Any) -> tuple[Profile, ...]:
    if isinstance(given, str | Mapping | Profile) or not isinstance(given, Iterable):
        raise ConfigurationError("Profiles are given as a list.")
    profiles = tuple(given)
    if not all(isinstance(profile, Profile) for profile in profiles):
        raise ConfigurationError("Each profile must be a Profile.")
    names = [profile.name for profile in profiles]
    if repeated := next((name for name in names if names.count(name) > 1), None):
        raise ConfigurationError(f"Two profiles are called {repeated}.")
    return profiles


def _with_profiles_of(settings: Settings, given: tuple[Profile, ...]) -> tuple[Profile, ...]:
    names = {profile.name for profile in given}
    return (*given, *(profile for name, profile in settings.profiles.items() if name not in names))


def _narrowed(profiles: tuple[Profile, ...], allowed: Mapping[str, tuple[str, ...]]) -> tuple[Profile, ...]:
    known = {profile.name for profile in profiles}
    if unknown := next((name for name in allowed if name not in known), None):
        raise ConfigurationError(f"The setting profile_allowed_tools names the profile {unknown}, which is not known.")
    return tuple(
        _with_at_most(profile, allowed[profile.name]) if profile.name in allowed else profile for profile in profiles
    )


def _with_at_most(profile: Profile, allowed: tuple[str, ...]) -> Profile:
    """The profile with no other tools than these. To recall counts as one of them, by whom it is asked for: a model
    that calls the tool, or the turn that begins."""
    tools = allowed if profile.tools is None else tuple(name for name in profile.tools if name in allowed)
    may_recall = any(RECALL_CONVERSATION in names_of(name) for name in allowed)
    return profile.replace(tools=tools, recall=profile.recall and may_recall)


def _fixed(location: Location | str) -> LocationSource:
    return lambda: location


def _function(name: str, given: V) -> V:
    if given is not None and (isclass(given) or not callable(given)):
        raise ConfigurationError(f"An engine takes a function as its {name}.")
    return given


def _servers(given: Any) -> Mapping[str, McpServer]:
    if given is None:
        return {}
    if not isinstance(given, Mapping) or not all(isinstance(name, str) for name in given):
        raise ConfigurationError("MCP servers are given as a dict from their names.")
    if not all(isinstance(server, McpServer) for server in given.values()):
        raise ConfigurationError("Each MCP server must be an McpServer.")
    return dict(given)
