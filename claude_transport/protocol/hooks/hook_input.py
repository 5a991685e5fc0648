"""What every hook input has."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, ClassVar, Self

from msgspec import field

from claude_transport.protocol.envelope import HIDDEN, Part
from claude_transport.protocol.salvage import salvage

__all__ = ["HookEffort", "HookInput", "HookMcpServer"]


class HookEffort(Part, frozen=True, kw_only=True):
    """How hard the model thinks in this turn: low, medium, high, ..."""

    level: str = ""


class HookMcpServer(Part, frozen=True, kw_only=True):
    """The MCP server of a tool. Trust `source` (`sdk`, `plugin`, `dynamic`, `user`, ...), not the name."""

    name: str = ""
    source: str = ""


class HookInput(Part, frozen=True, kw_only=True):
    """What a hook is told, of any event; also of one that this version has no class for, or that lacks what its class needs.

    It can be read like the wire's dict as well (`input["tool_name"]`), and `to_dict()` gives that dict, nothing lost.
    """

    essential: ClassVar[frozenset[str]] = frozenset()
    """Wire names without which an input is not taken for one of its event: what a guard decides on must not be a default."""

    hook_event_name: str = ""
    session_id: str = ""
    transcript_path: str = ""
    cwd: str = ""
    prompt_id: str | None = None
    permission_mode: str | None = None
    agent_id: str | None = None
    """The subagent in which it happened; None in the main conversation."""
    agent_type: str | None = None
    effort: HookEffort | None = None
    misfits: tuple[str, ...] = field(name=HIDDEN + "misfits", default=())
    """Wire paths of what did not fit and holds its default instead."""
    raw: dict[str, Any] = field(name=HIDDEN + "raw", default_factory=dict)
    """The input as it came."""

    @classmethod
    def from_wire_input(cls, data: Mapping[str, Any]) -> Self | None:
        """`data` as this class, or None when something essential is missing or has another type, or when too much does not fit."""
        misfits: list[str] = []
        raw = dict(data)
        struct = salvage(cls, raw, misfits=misfits)
        if struct is None or not cls.essential <= raw.keys() or cls.essential & set(misfits):
            return None
        known = {name: getattr(struct, name) for name in cls.__struct_fields__ if name not in {"raw", "misfits"}}
        return cls(**known, misfits=tuple(misfits), raw=raw)

    def to_dict(self) -> dict[str, Any]:
        """The whole input, in wire spelling."""
        return dict(self.raw) if self.raw else super().to_dict()

    def get(self, key: str, default: Any = None) -> Any:
        """The wire's value of `key`, or `default`."""
        return self.to_dict().get(key, default)

    def __getitem__(self, key: str) -> Any:
        return self.to_dict()[key]

    def __contains__(self, key: object) -> bool:
        return key in self.to_dict()

    def keys(self) -> list[str]:
        """The wire names, so that `dict(input)` works too."""
        return list(self.to_dict())

    def _shown(self) -> Iterator[tuple[str, Any]]:
        for name in self.__struct_fields__:
            if name not in {"raw", "misfits"}:
                yield name, getattr(self, name)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in self._shown())})"

    def __rich_repr__(self) -> list[tuple[str, Any]]:
        return list(self._shown())
