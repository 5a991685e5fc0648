"""A wrapper that counts prompts: it sees each one when the client hands it over, and passes it on."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import anyio
import msgspec

import claude_transport as ct
from claude_transport import testing


class CountsPrompts(ct.TransportWrapper):
    prompts = 0

    def attach(self, client: Any) -> Any:
        terms = super().attach(client)
        return msgspec.structs.replace(terms, on_prompt=functools.partial(self._count, terms.on_prompt))

    def _count(self, inner: Callable[[str], Any] | None, uuid: str) -> Any:
        self.prompts += 1
        return inner and inner(uuid)


async def main() -> None:
    wrapper = CountsPrompts(ct.MockTransport([testing.result("Hello!")]))
    async with ct.Query(wrapper) as query:
        await (await query.send("Hello")).result()
    print("prompts:", wrapper.prompts)


if __name__ == "__main__":
    anyio.run(main)
