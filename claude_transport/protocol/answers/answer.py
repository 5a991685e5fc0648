"""What every answer to a control request has."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Self

from msgspec import field

from claude_transport.protocol.envelope import HIDDEN, Part
from claude_transport.protocol.salvage import salvage

__all__ = ["Answer"]


class Answer(Part, frozen=True, kw_only=True):
    """The payload of a successful control response, typed; `raw` is all of it, also what has no field here."""

    misfits: tuple[str, ...] = field(name=HIDDEN + "misfits", default=())
    """Wire paths of what did not fit and holds its default instead."""
    raw: dict[str, Any] = field(name=HIDDEN + "raw", default_factory=dict)
    """The payload as it came."""

    @classmethod
    def from_payload(cls, payload: Mapping[str, Any]) -> Self:
        """The typed view of `ControlResponse.payload`; whatever does not fit is left at its default. Never raises.

        With more misfits than can be looked through (see `salvage`), all fields hold their default and `misfits` names the keys.
        """
        misfits: list[str] = []
        data = dict(payload)
        answer = salvage(cls, data, misfits=misfits)
        if answer is None:
            answer, misfits = cls(), [name for name in cls.__struct_encode_fields__ if name in data]
        known = {name: getattr(answer, name) for name in cls.__struct_fields__ if name not in {"raw", "misfits"}}
        return cls(**known, misfits=tuple(misfits), raw=data)

    def to_dict(self) -> dict[str, Any]:
        """The whole payload."""
        return dict(self.raw) if self.raw else super().to_dict()

    def _shown(self) -> Iterator[tuple[str, Any]]:
        for name in self.__struct_fields__:
            if name not in {"raw", "misfits"}:
                yield name, getattr(self, name)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in self._shown())})"

    def __rich_repr__(self) -> list[tuple[str, Any]]:
        return list(self._shown())
