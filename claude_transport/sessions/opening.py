"""`open_session_store`: makes the session store that a text names, so that the configuration of a program can say where transcripts go."""

from __future__ import annotations

from typing import Any

from claude_transport.errors import ClaudeTransportError
from claude_transport.launch.plugins import distribution_of, failed_plugin, load_plugin
from claude_transport.launch.session_store import SessionStore, is_store


def open_session_store(place: str) -> SessionStore:
    """Return the store at `place`: a `RedisSessionStore` for `redis://…` or `rediss://…`, and an `SQLiteSessionStore` for a path.

    Another scheme, as in `acme://bucket`, is that of a plug-in in the entry point group `claude_transport.session_stores`, which is called
    with `place`.

    Raises:
        ConfigurationError: the text names no store. Code `config.plugin_failed`: the plug-in cannot be used; the message names the
            distribution.
    """
    scheme, separator, _ = place.partition("://")
    scheme = scheme.lower()
    if separator and scheme in ("redis", "rediss"):
        from claude_transport.sessions.redis_store import RedisSessionStore

        return RedisSessionStore(place)
    make = load_plugin("session_stores", scheme) if separator else None
    if make is not None:
        return _made(scheme, make, place)
    from claude_transport.sessions.sqlite_store import SQLiteSessionStore

    return SQLiteSessionStore(place)


def _made(scheme: str, make: Any, place: str) -> SessionStore:
    try:
        store: SessionStore = make(place)
    except ClaudeTransportError:
        raise
    except Exception as exc:
        raise failed_plugin("session_stores", f"{_whose(scheme)} cannot be made ({type(exc).__name__}: {exc}). {_REMEDY}") from exc
    if not is_store(store):
        raise failed_plugin("session_stores", f"{_whose(scheme)} is a {type(store).__name__} and no SessionStore. {_REMEDY}")
    return store


_REMEDY = "Correct or remove that distribution."


def _whose(scheme: str) -> str:
    return f"the session store {scheme}:// of {distribution_of('session_stores', scheme)}"
