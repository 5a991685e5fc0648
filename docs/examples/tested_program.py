"""A program that asks Claude, and three tests of it that need neither a model nor a key nor a network."""

from __future__ import annotations

import anyio

import claude_transport as ct


async def headline(transport: ct.TransportLike, article: str) -> str:
    """The program under test: a headline for `article`, or "(none)" when the run failed."""
    async with ct.Query(transport) as query:
        turn = await query.send(f"A headline for: {article}")
        result = await turn.result()
        return result.result or "(none)" if result.outcome.ok else "(none)"


def said(text: str, *, is_error: bool = False) -> dict[str, object]:
    """The message that ends a turn."""
    return {"type": "result", "subtype": "success", "is_error": is_error, "result": text, "session_id": "s1"}


async def test_the_headline_is_what_claude_says() -> None:
    claude = ct.MockTransport([said("Sun rises again")])
    assert await headline(claude, "…") == "Sun rises again"
    assert claude.written[-1]["message"]["content"] == "A headline for: …"


async def test_a_failed_run_gives_no_headline() -> None:
    assert await headline(ct.MockTransport([said("API Error: 500", is_error=True)]), "…") == "(none)"


async def test_the_article_is_sent_before_anything_is_answered() -> None:
    claude = ct.MockTransport.script().expect(type="user").reply(said("In order"))
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
