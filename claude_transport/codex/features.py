"""Which Codex can do what: the supported range of versions, and the first version that has each feature.

How the versions were found: the binary of each version in `OBSERVED` was asked for its list of methods, and all end-to-end tests were run
on it. `since` is the first of those versions that has the feature, `lacked_by` the last one that was seen without it.
"""

from __future__ import annotations

from typing import Final, Literal, TypeAlias

import msgspec

from claude_transport.errors import CLIVersionMismatch
from claude_transport.launch.features import SupportedRange, parse_version

CODEX_RANGE: Final = SupportedRange(
    program="codex", oldest="0.150.1", newest="0.171.0", update="run `npm install -g @openai/codex`, or the update of your package manager"
)
"""Before 0.150, no version was examined: whether it asks for approval, and obeys the answer, is not known. So it is refused."""

OBSERVED: Final[tuple[str, ...]] = ("0.150.1", "0.155.1", "0.160.1", "0.166.0", "0.169.0", "0.171.0")
"""The versions whose binaries were examined for the table."""

CodexFeatureKind: TypeAlias = Literal["method", "field", "behaviour"]
"""Where a feature appears: a request of `app-server`, a field of a message, or in behaviour only."""


class CodexFeature(msgspec.Struct, frozen=True, kw_only=True):
    """One row: its name on the wire, the first version that has it, the last one seen without it, and what of this library needs it."""

    kind: CodexFeatureKind
    name: str
    since: str
    lacked_by: str
    use: str


def _methods(since: str, lacked_by: str, *names: str) -> tuple[CodexFeature, ...]:
    return tuple(
        CodexFeature(kind="method", name=name, since=since, lacked_by=lacked_by, use=f'`CodexSession.request("{name}")`') for name in names
    )


def _others(kind: CodexFeatureKind, *rows: tuple[str, str, str, str]) -> tuple[CodexFeature, ...]:
    return tuple(CodexFeature(kind=kind, name=name, since=since, lacked_by=lacked, use=use) for name, since, lacked, use in rows)


_IN_155: Final = (
    *("memory/status", "plugin/reconcile", "thread/attachment/add", "thread/attachment/list", "thread/attachment/remove"),
    *("turn/settings/update", "userVerification/cancel", "userVerification/delete", "userVerification/enroll"),
    *("userVerification/status", "userVerification/verify"),
)
_IN_160: Final = ("account/gatewayOAuth/cancel", "account/gatewayOAuth/login", "account/gatewayOAuth/read", "rollout/compress")
_IN_166: Final = (
    *("account/bedrock/checkGovCloudRequirements", "account/gcp/setup", "accountSession/list", "accountSession/switch", "feedback/save"),
    *("thread/attachmentOwner/list", "thread/items/read", "thread/memory/read", "thread/prediction/request", "thread/readState/update"),
    *("thread/sample", "thread/sample/cancel"),
)
_IN_169: Final = (
    *("account/securitySetup/read", "modelProvider/config/write", "modelProvider/list", "thread/guardianReview"),
    "thread/prepareApprovedPlan",
)
_IN_171: Final = (
    *("modelProvider/default/set", "thread/realtime/list", "thread/search/cancel", "thread/search/stream"),
    "thread/search/stream/cancel",
)

CODEX_FEATURES: Final[tuple[CodexFeature, ...]] = (
    *_methods("0.155.1", "0.150.1", *_IN_155),
    *_methods("0.160.1", "0.155.1", *_IN_160),
    *_methods("0.166.0", "0.160.1", *_IN_166),
    *_methods("0.169.0", "0.166.0", *_IN_169),
    *_methods("0.171.0", "0.169.0", *_IN_171),
    *_others(
        "field",
        ("excludeTurns", "0.155.1", "0.150.1", "a resume or a fork without the whole history in its answer; an older Codex sends it"),
        ("thread.model", "0.155.1", "0.150.1", "the model of a thread; of an older Codex it is taken from beside the thread"),
    ),
    *_others(
        "behaviour",
        ("SIGTERM ends with code 0", "0.155.1", "0.150.1", "the exit code after SIGTERM; an older Codex is ended by the signal"),
        ("a steer cuts the answer short", "0.166.0", "0.160.1", "`steer()`; an older Codex finishes the answer of the model first"),
        (
            "a passing limit is asked for again",
            "0.166.0",
            "0.160.1",
            "retries by Codex after a 429; before, only `complete()` retries",
        ),
        ("the system prompt is the first instruction", "0.166.0", "0.160.1", "`system=`; an older Codex puts its skills before it"),
    ),
)
"""All features that some supported Codex lacks, by kind and then by version."""

_BY_NAME: Final = {feature.name: feature for feature in CODEX_FEATURES}


def find_feature(name: str) -> CodexFeature | None:
    """Find the row of this name; None for a feature that every supported Codex has, or that the table does not know."""
    return _BY_NAME.get(name)


def codex_supports(name: str, *, version: str | None) -> bool | None:
    """Tell whether a Codex has the feature `name`: None when its version does not tell, and it may be tried.

    A method between the two versions of its row may be tried, too, because Codex refuses what it does not know.
    """
    feature, numbers = find_feature(name), parse_version(version)
    if feature is None:
        return True
    if numbers is None:
        return None
    since, lacked_by = parse_version(feature.since), parse_version(feature.lacked_by)
    if feature.kind == "method" and lacked_by is not None and since is not None and lacked_by < numbers < since:
        return None
    return since is None or numbers >= since


def require_method(method: str, *, version: str | None) -> None:
    """Refuse a method that this Codex is known to lack.

    Raises:
        CLIVersionMismatch: `flag` is the method, `version` that of Codex.
    """
    feature = find_feature(method)
    if feature is not None and feature.kind == "method" and codex_supports(method, version=version) is False:
        raise CLIVersionMismatch(
            f"this codex ({version}) does not know {method}: update codex to {feature.since} or newer, or do without",
            flag=method,
            version=version,
        )


def version_of(user_agent: object) -> str | None:
    """Return the version in the `userAgent` of the answer to `initialize`: `name/0.169.0 (…)`. None when there is none."""
    if not isinstance(user_agent, str):
        return None
    said = user_agent.partition(" ")[0].rpartition("/")[2]
    return said if parse_version(said) is not None else None
