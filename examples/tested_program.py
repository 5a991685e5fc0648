"""A program that asks Claude, and three tests of it that need neither a model nor a key nor a network."""

from __future__ import annotations

import anyio

import claude_transport as ct
from claude_transport.testing import result


async def headline(transport: ct.TransportLike, article: str) -> str:
    """The program under test: a headline for `article`, or "(none)" when the run failed."""
    async with ct.Query(transport) as query:
        turn = await query.send(f"A headline for: {article}")
        answer = await turn.result()
        return answer.result or "(none)" if answer.outcome.ok else "(none)"


async def test_the_headline_is_what_claude_says() -> None:
    claude = ct.MockTransport([result("Sun rises again")])
    assert await headline(claude, "…") == "Sun rises again"
    assert claude.written[-1]["message"]["content"] == "A headline for: …"


async def test_a_failed_run_gives_no_headline() -> None:
    assert await headline(ct.MockTransport([result("API Error: 500", is_error=True)]), "…") == "(none)"


async def test_the_article_is_sent_before_anything_is_answered() -> None:
    claude = ct.MockTransport.script().expect(type="user").reply(result("In order"))
    assert await headline(claude, "…") == "In order"
    claude.assert_exhausted()


async def main() -> None:
    for test in (
        test_the_headline_is_what_claude_says,
        test_a_failed_run_gives_no_headline,
        test_the_article_is_sent_before_anything_is_answered,
    ):
        await test()
        print("passed:", test.__name__.removeprefix("test_").replace("_", " "))


if __name__ == "__main__":
    anyio.run(main)
