"""The house has floors: imports only go down, and this test reads every import of the package to prove it.

The table is that of `docs/explanation/architecture.md`. The checker itself is tested below on small made-up trees, because a
checker that finds nothing is indistinguishable from a house without faults.
"""

from __future__ import annotations

import ast
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest

PACKAGE = "claude_transport"
ROOT = Path(__file__).parent.parent / PACKAGE

# The first component below the package is the unit that has a floor. A new unit must be given one here, on purpose.
FLOORS = {
    "errors": 0,
    "lazy": 0,
    "loggers": 0,
    "platform": 0,
    "text": 0,
    "backoff": 1,
    "loops": 1,
    "protocol": 1,
    "launch": 1,
    "redis": 2,
    "transport": 3,
    "messages": 3,
    "hooks": 3,
    "control": 3,
    "wire": 3,
    "sessions": 3,
    "agents": 4,
    "streams": 4,
    "link": 5,
    "exchange": 5,
    "wrappers": 5,
    "codex": 5,
    "transports": 6,
    "inspection": 6,
    "client": 6,
    "jsonrpc": 6,
    "serving": 6,
    "agents.warm_pool": 6,
    "codex.session": 7,
    "bridge": 7,
    "completion": 7,
    "gateway": 7,
    "interop": 7,
    "observing": 7,
    "pool": 7,
    "fleet": 8,
    "codex.agent": 8,
    "testing": 8,
    "app": 9,
    "__init__": 10,
    "__main__": 10,
}

# Modules that stand above the rest of their package: what they know of other units, the rest does not. Each group is a unit of its own.
UPSTAIRS: Mapping[str, str] = {
    **dict.fromkeys(("codex.blocking", "codex.callbacks", "codex.post", "codex.session"), "codex.session"),
    **dict.fromkeys(
        (
            *("codex.agent", "codex.asking", "codex.calling", "codex.lanes", "codex.metrics", "codex.pool"),
            *("codex.prompting", "codex.prompts", "codex.spans", "codex.turns"),
        ),
        "codex.agent",
    ),
    "agents.warm_pool": "agents.warm_pool",
    "codex.testing": "testing",  # the stand-ins of an agent are a part of `testing`
}

EVENT_LOOPS = frozenset({"anyio", "asyncio", "curio", "sniffio", "trio", "uvloop"})

# What a unit may not import although its floor would allow it, and why.
FORBIDDEN_UNITS: Mapping[str, tuple[frozenset[str], str]] = {
    "protocol": (frozenset({"launch"}), "the wire does not know how a program is started"),
    "launch": (frozenset({"protocol"}), "starting a program does not know what is said to it"),
    "client": (frozenset({"transports"}), "a Query runs over any Transport; the default one is chosen in completion/one_shot.py"),
    "wrappers": (frozenset({"transports", "streams", "launch"}), "a wrapper wraps any Transport and may know none of them"),
}
NO_WORLD = EVENT_LOOPS | {"multiprocessing", "select", "selectors", "signal", "socket", "ssl", "subprocess", "threading", "time"}
# Units, or single modules, that decide and do nothing else.
FORBIDDEN_MODULES: Mapping[str, tuple[frozenset[str], str]] = {
    "errors": (EVENT_LOOPS, "errors belong to no event loop"),
    "backoff": (EVENT_LOOPS, "schedules are pure: the caller does the waiting"),
    "protocol": (NO_WORLD, "the protocol is pure: no event loop, no I/O, no clock"),
    "launch": (EVENT_LOOPS, "deciding what would be run needs no event loop"),
    **dict.fromkeys(
        (
            *("codex.turns", "codex.watch", "codex.conversation", "link.machine"),
            *(f"fleet.{name}" for name in ("answers", "ends", "messages", "placement", "scripts", "secrets", "takeover")),
        ),
        (NO_WORLD, "a machine is pure: no event loop, no I/O, no clock"),
    ),
}
# Two units on one floor are neighbours, and neighbours do not know each other, except these: "importer → imported": why.
NEIGHBOURS: Mapping[str, str] = {
    "lazy → errors": "a module that cannot be read is reported as a typed error",
    "errors → text": "the message of an error may quote a peer: it is shown on one line, without secrets",
    "testing → fleet": "the kit holds what a worker serves to the same contract as every other medium",
}
# A wing is what the core can be used without. The core and `serving` know no wing, and a wing knows another for a reason only.
# `testing` plays all of them, and `app` runs all of them.
WINGS = frozenset(
    {
        *("bridge", "codex", "completion", "fleet", "gateway", "inspection", "interop", "observing", "pool", "sessions"),
        *("app", "testing", "__init__", "__main__"),
    }
)
KNOW_ALL_WINGS = frozenset({"app", "testing", "__init__", "__main__"})
KNOWN_WINGS: Mapping[str, str] = {
    "completion → codex": "the type of the argument `codex`",
    "gateway → inspection": "the live page is the inspector's",
    "transports → sessions": "a session with a store is mirrored into it",
}
FORBIDDEN_EVERYWHERE = {
    "claude_agent_sdk": "the official SDK is a peer to interoperate with, never a dependency",
    "coredis": "one module connects to Redis, for fleets and session stores",
}
# Where it is known all the same, but only inside functions and to type checkers: importing the module does not import it.
KNOWN_LAZILY = {"claude_agent_sdk": "claude_transport.interop.agent_sdk", "coredis": "claude_transport.redis.client"}
FORBIDDEN_NAMES = frozenset({"utils", "util", "helpers", "helper", "common", "types", "_internal", "misc"})

# What an installation starts without an import from another module: the console script and the pytest plugin.
ENTRY_POINTS = frozenset({f"{PACKAGE}.app.main", f"{PACKAGE}.testing.plugin", f"{PACKAGE}.codex.testing.plugin"})

MAX_ROOT_MODULES = 9  # beside `__init__` and `__main__`: a module that belongs to a room is in it
MAX_FUNCTION_LINES = 50  # without the docstring: explaining a contract must never be a reason to cut it short
# Modules with one importer or none, and why each is a module all the same. An entry that is no longer needed fails the test. Left out is
# what the test can see: modules that are public behind a door, loaded only when they are needed, or run in a process of their own.
SINGLE_IMPORTERS: Mapping[str, str] = {
    "bridge.stdio": "The CLI's end of the bridge: it runs in another process and must not import the host's end.",
    "client.compatibility": "What older versions of the CLI cannot do; it changes with those versions.",
    "codex.asking": "What a call may ask for, and its translation; it changes with the arguments of a call, `calling` with the answers.",
    "codex.post": "What waits for its readers, and its bound; it changes with how memory is counted.",
    "fleet.hosted": "One session, from claim to end; it changes with the ends of a session, the worker with placement.",
    "serving.pace": "How often clients may connect; the door changes with tokens and limits.",
    "gateway.link_session": "Processes that outlive a connection; it changes with why a session ends, `session` with the limits.",
    "link.session": "The server's end of a link, which the gateway puts a process behind; the client's end is in `carrier`.",
    "serving.page_server": "A listener for pages alone, from the parts of a gateway's own; only a worker with a metrics port loads it.",
    "pool.aim": "How a ready session goes elsewhere; it changes with what the CLI keeps of a directory.",
    "codex.turns": "The turns of Codex in bytes; it changes with that protocol.",
    "completion.api_path": "The path that imports `anthropic`, which an attempt through a CLI never does.",
    "streams.http": "One request of HTTP on a stream; it changes with HTTP, and `observing` with the events.",
    "testing.conformance.checks.connecting": "The clauses on one topic; the list of clauses imports each topic.",
    "testing.conformance.checks.endings": "The clauses on one topic; the list of clauses imports each topic.",
    "testing.conformance.checks.reading": "The clauses on one topic; the list of clauses imports each topic.",
    "testing.conformance.checks.wrapping": "The clauses on one topic; the list of clauses imports each topic.",
    "testing.conformance.checks.writing": "The clauses on one topic; the list of clauses imports each topic.",
    "testing.conformance.declared": "A transport with all terms, and a claude that holds prompts back: what the clauses wrap.",
    "testing.conformance.socket_peer": "The other ends of sockets and links, with their certificates.",
    "testing.conformance.sshd": "Starts a real ssh server for one medium.",
    "testing.fake_claude_process.control": "Answers to control requests; it changes with the control protocol.",
    "testing.fake_claude_process.tools": "A tool call, with its hooks and permission; it changes with them, and not with the other steps.",
    "codex.testing.fake_codex_process.turns": "How steps are played; it changes with the steps.",
    "wrappers.own_lines": "What a wrapper says by itself, which the bases of wrappers only offer; they are long enough.",
}
MOST_SINGLE_IMPORTERS = 25
# A function that is longer, and the sentence that justifies it. An entry that is no longer needed fails the test.
LONG_FUNCTIONS: Mapping[str, str] = {}

SHARED_CLASS_NAMES: Mapping[str, str] = {
    "Answer": "`control.Answer` is of the CLI, `testing.Answer` of the fake: each behind a door of its own",
    "Delay": "a step of `testing.steps` and a fault of `wrappers.faults`: both are written with their module",
    "EmitRecorded": "the same step of two fakes",
    "Notification": "`jsonrpc.Notification` is of JSON-RPC, `messages.Notification` of the CLI: each behind a door of its own",
    "Request": "`jsonrpc.Request` arrives, `steps.Request` is sent by the fake: each is written with its module",
    "Usage": "`replies.Usage` is what the fake API says; it is written with its module",
}
"""Names of more than one class, and why: all others are the name of one thing."""


@dataclass(frozen=True)
class Module:
    """One source file: its dotted name, its parsed tree, its length."""

    name: str
    path: Path
    tree: ast.Module
    lines: int
    imports: list[Import] = field(default_factory=list, hash=False, compare=False)
    """What `read_imports` has found: most rules ask for it."""

    @property
    def is_package(self) -> bool:
        return self.path.name == "__init__.py"

    @property
    def unit(self) -> str:
        return unit_of(self.name)


@dataclass(frozen=True)
class Import:
    """One import: who, what (the deepest module of the house it names, or the foreign module), and where."""

    importer: str
    target: str
    line: int
    is_lazy: bool = False  # inside a function, or for type checkers alone

    def __str__(self) -> str:
        return f"{self.importer}:{self.line} imports {self.target}"


def unit_of(name: str) -> str:
    parts = name.split(".")
    return UPSTAIRS.get(".".join(parts[1:3])) or (parts[1] if len(parts) > 1 else "__init__")


def is_door_of(module: Module, found: Import) -> bool:
    """Whether a package names its own upper part, which it does not load: a door stands beside the house, not in it."""
    return module.is_package and found.target.startswith(f"{module.name}.") and unit_of(found.target) in UPSTAIRS.values()


def is_ours(name: str) -> bool:
    return name == PACKAGE or name.startswith(f"{PACKAGE}.")


def read_house(root: Path) -> dict[str, Module]:
    """Every module under `root` by dotted name; `__init__.py` has the name of its package."""
    house = {}
    for path in sorted(root.rglob("*.py")):
        parts = [PACKAGE, *path.relative_to(root).with_suffix("").parts]
        name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        source = path.read_text("utf-8")
        house[name] = Module(name, path, ast.parse(source, str(path)), len(source.splitlines()))
    return house


def read_imports(module: Module, house: Mapping[str, Module]) -> list[Import]:
    """Every import of `module`, wherever it stands: inside functions and under TYPE_CHECKING too, because a name that is
    only needed for types is still knowledge of the module it comes from."""
    if not module.imports:
        module.imports.extend(found_imports(module, house))
    return module.imports


def found_imports(module: Module, house: Mapping[str, Module]) -> Iterator[Import]:
    lazy = set(lazy_nodes(module.tree))
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield Import(module.name, alias.name, node.lineno, node in lazy)
        elif isinstance(node, ast.ImportFrom):
            base = resolve_base(module, node)
            for alias in node.names:
                submodule = f"{base}.{alias.name}"
                yield Import(module.name, submodule if submodule in house else base, node.lineno, node in lazy)
        elif isinstance(node, ast.Call):
            for target in dynamic_targets(node):
                yield Import(module.name, target, node.lineno)


def lazy_nodes(tree: ast.Module) -> Iterator[ast.AST]:
    """Everything inside a function, or under `if TYPE_CHECKING:`: not run when the module is imported."""
    yield from late_nodes(tree)
    yield from typing_nodes(tree)


def late_nodes(tree: ast.Module) -> Iterator[ast.AST]:
    """Everything inside a function."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield from ast.walk(node)


def platform_nodes(tree: ast.Module) -> Iterator[ast.AST]:
    """Everything under `if os.name == "nt":` or `if sys.platform == "…":`: run on that system only."""
    for node in ast.walk(tree):
        if isinstance(node, ast.If) and isinstance(node.test, ast.Compare) and ast.unparse(node.test.left) in ("os.name", "sys.platform"):
            for guarded in node.body:
                yield from ast.walk(guarded)


def typing_nodes(tree: ast.Module) -> Iterator[ast.AST]:
    """Everything under `if TYPE_CHECKING:`, which is never run."""
    for node in ast.walk(tree):
        if isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
            for guarded in node.body:
                yield from ast.walk(guarded)


def resolve_base(module: Module, node: ast.ImportFrom) -> str:
    if not node.level:
        return node.module or ""
    parts = module.name.split(".")
    drop = node.level - 1 if module.is_package else node.level
    return ".".join([*parts[: len(parts) - drop], *([node.module] if node.module else [])])


def dynamic_targets(call: ast.Call) -> Iterator[str]:
    """Yield each module that `import_module("…")`, `__import__("…")` or the table of `lazy_names(…)` names, where it is spelled out."""
    name = call.func.attr if isinstance(call.func, ast.Attribute) else call.func.id if isinstance(call.func, ast.Name) else ""
    if name == "lazy_names":
        yield from (f"{PACKAGE}.{home}" for home in ast.literal_eval(call.args[1]))
    elif name in {"import_module", "__import__"} and call.args and isinstance(call.args[0], ast.Constant):
        yield str(call.args[0].value)


def faults_of_floors(house: Mapping[str, Module]) -> Iterator[str]:
    """One sentence per module without a floor and per import that does not go down."""
    for module in house.values():
        if module.unit not in FLOORS:
            yield f"{module.name} has no floor: give `{module.unit}` one in FLOORS and in docs/explanation/architecture.md"
            continue
        for found in read_imports(module, house):
            if not is_ours(found.target) or unit_of(found.target) == module.unit or is_door_of(module, found):
                continue
            here, there = FLOORS[module.unit], FLOORS.get(unit_of(found.target))
            if there is None:
                yield f"{found}, which has no floor"
            elif there > here:
                yield f"{found}: upward, from floor {here} to floor {there}"
            elif there == here and f"{module.unit} → {unit_of(found.target)}" not in NEIGHBOURS:
                yield f"{found}: sideways, both on floor {here}; move what they share down, or justify it in NEIGHBOURS"


def faults_of_knowledge(house: Mapping[str, Module]) -> Iterator[str]:
    """One sentence per import of something that its importer must not know, whatever the floors say."""
    for module in house.values():
        units, units_why = FORBIDDEN_UNITS.get(module.unit, (frozenset(), ""))
        modules, modules_why = FORBIDDEN_MODULES.get(module.name.partition(".")[2]) or FORBIDDEN_MODULES.get(module.unit, (frozenset(), ""))
        floor = FLOORS.get(module.unit)
        for found in read_imports(module, house):
            top = found.target.split(".")[0]
            if top in FORBIDDEN_EVERYWHERE:
                home = KNOWN_LAZILY[top]
                if found.is_lazy and (module.name == home or module.name.startswith(f"{home}.")):
                    continue
                yield f"{found}: {FORBIDDEN_EVERYWHERE[top]}"
            elif is_ours(found.target) and unit_of(found.target) in units:
                there = FLOORS.get(unit_of(found.target))
                yield f"{found} (floor {floor} to floor {there}): {units_why}"
            elif not is_ours(found.target) and top in modules:
                yield f"{found} (on floor {floor}): {modules_why}"


def faults_of_cycles(house: Mapping[str, Module]) -> Iterator[str]:
    """One sentence per cycle among modules, also inside one package.

    An import counts for the deepest module it names. That Python also runs the `__init__` of every package on the way is left out:
    counting it would make a cycle of every package that re-exports its own modules.
    """
    edges = {
        name: sorted({found.target for found in read_imports(module, house) if found.target in house and found.target != name})
        for name, module in house.items()
    }
    done: set[str] = set()

    def walk(name: str, path: list[str]) -> Iterator[str]:
        if name in path:
            yield "import cycle: " + " → ".join([*path[path.index(name) :], name])
        elif name not in done:
            for target in edges[name]:
                yield from walk(target, [*path, name])
            done.add(name)

    for name in edges:
        yield from walk(name, [])


def faults_of_names(house: Mapping[str, Module]) -> Iterator[str]:
    for module in house.values():
        for bad in FORBIDDEN_NAMES.intersection(module.name.split(".")[1:]):
            yield f"{module.name}: `{bad}` names no noun; say what the module owns"


def faults_of_classes(house: Mapping[str, Module], justified: Mapping[str, str]) -> Iterator[str]:
    """Yield the names that more than one class has, and the reasons that nobody needs any more."""
    found: dict[str, list[str]] = {}
    for module in house.values():
        for node in ast.walk(module.tree):
            if isinstance(node, ast.ClassDef):
                found.setdefault(node.name, []).append(f"{module.name}:{node.lineno}")
    shared = {name: places for name, places in found.items() if len(places) > 1}
    for name, places in shared.items():
        if name not in justified:
            yield f"`{name}` is the name of several classes ({', '.join(places)}): one name, one thing"
    for name in justified.keys() - shared.keys():
        yield f"`{name}` is the name of one class: remove it from SHARED_CLASS_NAMES"


def faults_of_root(house: Mapping[str, Module]) -> Iterator[str]:
    """A sentence when too many modules stand beside the rooms."""
    loose = [module.path.stem for name, module in house.items() if name.count(".") == 1 and not module.is_package]
    if len(named := sorted({*loose} - {"__main__"})) > MAX_ROOT_MODULES:
        yield f"{len(named)} modules are in no room, more than {MAX_ROOT_MODULES}: {', '.join(named)}"


def body_lines(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Lines from `def` to the end, without the docstring."""
    docstring = function.body[0] if ast.get_docstring(function) is not None else None
    total = (function.end_lineno or function.lineno) - function.lineno + 1
    return total - ((docstring.end_lineno or docstring.lineno) - docstring.lineno + 1 if docstring else 0)


def read_functions(node: ast.AST, prefix: str) -> Iterator[tuple[str, ast.FunctionDef | ast.AsyncFunctionDef]]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            name = f"{prefix}.{child.name}"
            if not isinstance(child, ast.ClassDef):
                yield name, child
            yield from read_functions(child, name)
        else:
            yield from read_functions(child, prefix)


def faults_of_size(house: Mapping[str, Module], justified: Mapping[str, str]) -> Iterator[str]:
    """One sentence per function that is too long without a justification, and per justification without a need."""
    found = {
        name: lines
        for module in house.values()
        for name, function in read_functions(module.tree, module.name)
        if (lines := body_lines(function)) > MAX_FUNCTION_LINES
    }
    for name, lines in found.items():
        if not justified.get(name, "").strip():
            yield f"function {name} has {lines} lines, more than {MAX_FUNCTION_LINES}: split it, or justify it in one sentence"
    for name in justified.keys() - found.keys():
        yield f"function {name} is justified as too long, but is not (any more): strike it off the list"


def find_importers(house: Mapping[str, Module]) -> dict[str, set[str]]:
    """Return the modules that import each module of the house; the tables of `lazy_names` and names for `load_late` count, too."""
    importers: dict[str, set[str]] = {name: set() for name in house}
    for module in house.values():
        found = {each.target for each in read_imports(module, house)} | named_late(module, house) | imported_by_script(module, house)
        for target in found & importers.keys() - {module.name}:
            importers[target].add(module.name)
    return importers


def called_name(call: ast.Call) -> str:
    return call.func.attr if isinstance(call.func, ast.Attribute) else call.func.id if isinstance(call.func, ast.Name) else ""


def named_late(module: Module, house: Mapping[str, Module]) -> set[str]:
    """Return the modules whose names stand in a module that calls `load_late()`: in the call, or in a table that it reads."""
    nodes = list(ast.walk(module.tree))
    if not any(isinstance(node, ast.Call) and called_name(node) == "load_late" for node in nodes):
        return set()
    return {node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value in house}


def is_script(module: Module) -> bool:
    """Whether the file can be run by its path: it does something when it is `__main__`."""
    return any(isinstance(node, ast.If) and ast.unparse(node.test) == "__name__ == '__main__'" for node in module.tree.body)


def imported_by_script(module: Module, house: Mapping[str, Module]) -> set[str]:
    """Return what a script imports without the name of the whole package: from the folder above its own, which it adds to `sys.path`."""
    if not is_script(module):
        return set()
    above = module.name.split(".")[:-2]
    wanted = [node.module for node in ast.walk(module.tree) if isinstance(node, ast.ImportFrom) and node.module and not node.level]
    return {name for each in wanted if (name := ".".join((*above, each))) in house}


def is_started_otherwise(module: Module) -> bool:
    """Whether something else than another module imports it: the interpreter, an entry point, the program's command line, or users."""
    if any(isinstance(node, ast.Call) and getattr(node.func, "id", "") == "lazy_names" for node in ast.walk(module.tree)):
        return True  # a door, such as `claude_transport.messages`: programs import it
    is_command = module.unit == "app" and any(isinstance(node, ast.FunctionDef) and node.name == "run" for node in module.tree.body)
    return module.path.name == "__main__.py" or module.name in ENTRY_POINTS or is_command


def find_public(house: Mapping[str, Module]) -> set[str]:
    """Return the modules that programs use through a door: its table has names of them, or they are attributes of the package."""
    public = set()
    for module in house.values():
        for call in ast.walk(module.tree):
            if isinstance(call, ast.Call) and called_name(call) == "lazy_names":
                homes = ast.literal_eval(call.args[1])
                public |= {f"{PACKAGE}.{home}" for home, names in homes.items() if names.split()}
                attributes = [ast.literal_eval(each.value) for each in call.keywords if each.arg == "modules"]
                public |= {f"{module.name}.{name}" for names in attributes for name in names}
    return public & house.keys()


def find_late(house: Mapping[str, Module], importers: Mapping[str, set[str]]) -> set[str]:
    """Return the modules with one importer, which loads them when they are needed: inside functions, on one system, or by their names."""
    late = set()
    for name, who in importers.items():
        if len(who) == 1:
            (importer,) = (house[each] for each in who)
            imports = runtime_imports(importer, house).get(name, [])
            if all(imports) and (imports or name in named_late(importer, house)):
                late.add(name)
    return late


def runtime_imports(module: Module, house: Mapping[str, Module]) -> dict[str, list[bool]]:
    """Return whether each import of a module is late, by the module that is imported. Imports for type checkers are left out."""
    for_types, late = set(typing_nodes(module.tree)), {*late_nodes(module.tree), *platform_nodes(module.tree)}
    found: dict[str, list[bool]] = {}
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Import | ast.ImportFrom | ast.Call) and node not in for_types:
            alone = Module(module.name, module.path, ast.Module([node if isinstance(node, ast.stmt) else ast.Expr(node)], []), 0)
            for target in {each.target for each in read_imports(alone, house)}:
                found.setdefault(target, []).append(node in late)
    return found


def find_alone(house: Mapping[str, Module], importers: Mapping[str, set[str]]) -> set[str]:
    """Return the modules that run in a process of their own: scripts whose file another module names, and what only such a script runs."""
    nodes = (node for module in house.values() for node in ast.walk(module.tree))
    texts = {node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str)}
    scripts = {name for name, module in house.items() if is_script(module) and module.path.name in texts}
    run = {name for script in scripts for name in imported_by_script(house[script], house)}
    return scripts | {name for name in run if len(importers[name]) == 1}


def find_few_importers(house: Mapping[str, Module]) -> tuple[list[str], list[str]]:
    """Return the modules whose importers are counted, and those of them that need a reason: with at most one, and none that can be seen.

    It can be seen that a module is public behind a door, that it is loaded only when it is needed, or that a process of its own runs it.
    """
    importers = find_importers(house)
    counted = [name for name, module in house.items() if not module.is_package and not is_started_otherwise(module)]
    seen = find_public(house) | find_late(house, importers) | find_alone(house, importers)
    return counted, [name for name in counted if len(importers[name]) <= 1 and name not in seen]


def faults_of_importers(house: Mapping[str, Module], justified: Mapping[str, str]) -> Iterator[str]:
    """One sentence per module with at most one importer and no justification, and per justification without a need."""
    importers = find_importers(house)
    few = {name.partition(".")[2]: importers[name] for name in find_few_importers(house)[1]}
    for name, who in few.items():
        if not justified.get(name, "").strip():
            yield f"{name} is imported by {', '.join(who) or 'no module'} alone: merge them, or give a reason in SINGLE_IMPORTERS"
    for name in justified.keys() - few.keys():
        yield f"{name} is justified as a module with one importer, but is not one (any more): strike it off SINGLE_IMPORTERS"


@pytest.fixture(scope="module")
def house() -> dict[str, Module]:
    """Every module of the package. Each process of a run collects this file, and few run its tests, so it is not read before that."""
    return read_house(ROOT)


def report(faults: Iterator[str]) -> str:
    return "\n".join(faults)


KNOW_CODEX: Mapping[str, str] = {
    "completion.blocking": "the type of the argument `codex`",
    "completion.call": "the type of the argument `codex`",
    "completion.readiness": "the type of the argument `codex`",
}
"""Modules that import something of Codex, and why. All others ask an `Agent`. Another agent gets no such list."""


def test_nothing_but_what_takes_its_options_knows_codex(house: dict[str, Module]) -> None:
    knowing = {
        name.removeprefix(f"{PACKAGE}.")
        for name, module in house.items()
        if room_of(name) not in {"codex", "testing"}
        for found in read_imports(module, house)
        if room_of(found.target) == "codex"
    }
    assert knowing == set(KNOW_CODEX)


MENTION_CODEX = (
    *("__init__", "agents.registry", "app.arguments", "completion.blocking", "completion.call", "completion.readiness"),
    *("completion.resolution", "testing"),
)
"""Modules outside its room with the word Codex: the table of agents, public names and arguments, and an option of the program."""


def test_nothing_but_public_names_mentions_codex(house: dict[str, Module]) -> None:
    mentioning = {
        name.removeprefix(f"{PACKAGE}.").replace(PACKAGE, "__init__")
        for name, module in house.items()
        if not name.startswith(f"{PACKAGE}.codex") and "codex" in module.path.read_text("utf-8").lower()
    }
    assert mentioning == set(MENTION_CODEX)


def test_every_module_has_a_floor_and_imports_only_from_below(house: dict[str, Module]) -> None:
    assert report(faults_of_floors(house)) == ""


def test_no_module_knows_what_it_must_not_know(house: dict[str, Module]) -> None:
    assert report(faults_of_knowledge(house)) == ""


def room_of(name: str) -> str:
    return "testing" if unit_of(name) == "testing" else [*name.split("."), "__init__"][1]


def known_wings(house: Mapping[str, Module]) -> set[str]:
    """`importer → wing` for each room that knows a wing, but those that may know all."""
    return {
        f"{room_of(module.name)} → {room_of(found.target)}"
        for module in house.values()
        if room_of(module.name) not in KNOW_ALL_WINGS
        for found in read_imports(module, house)
        if is_ours(found.target) and room_of(found.target) in WINGS - {room_of(module.name)}
    }


def test_a_wing_is_known_where_there_is_a_reason_and_nowhere_else(house: dict[str, Module]) -> None:
    assert known_wings(house) == set(KNOWN_WINGS)
    assert len(KNOWN_WINGS) <= 3


def test_no_modules_import_each_other_in_a_circle(house: dict[str, Module]) -> None:
    assert report(faults_of_cycles(house)) == ""


def test_every_file_is_named_after_the_noun_it_owns(house: dict[str, Module]) -> None:
    assert report(faults_of_names(house)) == ""


def test_a_class_name_is_the_name_of_one_thing(house: dict[str, Module]) -> None:
    assert report(faults_of_classes(house, SHARED_CLASS_NAMES)) == ""


def test_few_modules_are_in_no_room(house: dict[str, Module]) -> None:
    assert report(faults_of_root(house)) == ""


def test_no_two_test_modules_share_a_name() -> None:
    # pytest imports them by their bare names: of two, the second cannot be collected, and only a run of everything shows it
    names = [path.name for path in Path(__file__).parent.rglob("test_*.py")]
    assert sorted(names) == sorted(set(names))


def test_long_functions_are_justified(house: dict[str, Module]) -> None:
    assert report(faults_of_size(house, LONG_FUNCTIONS)) == ""


def test_modules_with_one_importer_are_justified(house: dict[str, Module]) -> None:
    assert report(faults_of_importers(house, SINGLE_IMPORTERS)) == ""
    assert len(SINGLE_IMPORTERS) <= MOST_SINGLE_IMPORTERS


def test_every_entry_point_of_the_distribution_is_known() -> None:
    project = tomllib.loads((ROOT.parent / "pyproject.toml").read_text("utf-8"))["project"]
    groups = [project["scripts"], *project["entry-points"].values()]
    assert {value.partition(":")[0] for group in groups for value in group.values()} == ENTRY_POINTS


def test_every_justified_neighbourhood_is_still_needed(house: dict[str, Module]) -> None:
    used = {f"{module.unit} → {unit_of(found.target)}" for module in house.values() for found in read_imports(module, house)}
    assert set(NEIGHBOURS) <= used
    assert len(NEIGHBOURS) <= 3


# ------------------------------------------------------------------------------------------- the checker, on made-up houses


def build_house(root: Path, files: Mapping[str, str]) -> dict[str, Module]:
    """A made-up package with these files (path below the package → source); missing `__init__.py` files are added empty."""
    for name, source in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(source, "utf-8")
    for folder in {root, *(path.parent for path in root.rglob("*.py"))}:
        (folder / "__init__.py").touch()
    return read_house(root)


@pytest.mark.parametrize(
    "source",
    [
        "from claude_transport.client import turns",
        "from claude_transport.client.turns import Turn",
        "import claude_transport.client.turns",
        "from .client import turns",
        "from . import client",
        "def later():\n    from claude_transport.client import turns",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from claude_transport.client import turns",
        "import importlib\nimportlib.import_module('claude_transport.client.turns')",
    ],
)
def test_an_upward_import_is_named_with_both_floors_however_it_is_written(tmp_path: Path, source: str) -> None:
    house = build_house(tmp_path, {"transport.py": source, "client/turns.py": ""})
    (fault,) = faults_of_floors(house)
    assert "claude_transport.transport:" in fault
    assert "imports claude_transport.client" in fault
    assert "from floor 3 to floor 6" in fault


def test_the_public_face_may_not_be_imported_from_inside(tmp_path: Path) -> None:
    house = build_house(tmp_path, {"app/main.py": "import claude_transport as ct"})
    assert [*faults_of_floors(house)] == ["claude_transport.app.main:1 imports claude_transport: upward, from floor 9 to floor 10"]


def test_neighbours_on_one_floor_do_not_import_each_other(tmp_path: Path) -> None:
    (fault,) = faults_of_floors(build_house(tmp_path, {"pool.py": "from claude_transport.gateway import serve", "gateway/__init__.py": ""}))
    assert "sideways, both on floor 7" in fault


def test_imports_that_go_down_or_stay_in_their_package_are_fine(tmp_path: Path) -> None:
    files = {
        "errors.py": "",
        "transport.py": "from claude_transport.errors import Busy\nimport anyio",
        "client/turns.py": "from ..transport import Transport\nfrom . import handlers",
        "client/handlers.py": "from claude_transport import errors",
    }
    house = build_house(tmp_path, files)
    assert [*faults_of_floors(house), *faults_of_knowledge(house), *faults_of_cycles(house), *faults_of_names(house)] == []


@pytest.mark.parametrize(("path", "known"), [("client/turns.py", {"client → pool"}), ("pool/aim.py", set()), ("app/main.py", set())])
def test_a_room_that_knows_a_wing_is_named(tmp_path: Path, path: str, known: set[str]) -> None:
    house = build_house(tmp_path, {path: "def later():\n    from claude_transport.pool import keys", "pool/keys.py": ""})
    assert known_wings(house) == known


def test_a_module_without_a_floor_is_reported(tmp_path: Path) -> None:
    house = build_house(tmp_path, {"attic.py": "", "pool.py": "from claude_transport import attic"})
    assert [fault.split(":")[0] for fault in faults_of_floors(house)] == ["claude_transport.attic has no floor", "claude_transport.pool"]


@pytest.mark.parametrize(
    ("path", "source", "named"),
    [
        ("protocol/codec.py", "from claude_transport.launch import argv", "claude_transport.launch.argv"),
        ("launch/argv.py", "from ..protocol import codec", "claude_transport.protocol.codec"),
        ("client/query.py", "from claude_transport.transports.mock import MockTransport", "claude_transport.transports.mock"),
        ("wrappers/logging.py", "from claude_transport.transports import mock", "claude_transport.transports.mock"),
        ("protocol/codec.py", "import asyncio", "asyncio"),
        ("protocol/codec.py", "import anyio.abc", "anyio.abc"),
        ("protocol/codec.py", "from time import monotonic", "time"),
        ("launch/argv.py", "def probe():\n    import trio", "trio"),
        ("launch/argv.py", "import sniffio", "sniffio"),
        ("interop/agent_sdk.py", "import claude_agent_sdk", "claude_agent_sdk"),
        ("interop/other.py", "def later():\n    import claude_agent_sdk", "claude_agent_sdk"),
        ("app/main.py", "from claude_agent_sdk import query", "claude_agent_sdk"),
        ("fleet/broker.py", "def later():\n    import coredis", "coredis"),
        ("redis/client.py", "from coredis.exceptions import RedisError", "coredis.exceptions"),
    ],
)
def test_forbidden_knowledge_is_named_with_its_reason(tmp_path: Path, path: str, source: str, named: str) -> None:
    files = {"launch/argv.py": "", "protocol/codec.py": "", "transports/mock.py": "", path: source}
    (fault,) = faults_of_knowledge(build_house(tmp_path, files))
    assert f"imports {named}" in fault
    assert len(fault.rsplit(": ", 1)[1]) > 20


@pytest.mark.parametrize("guard", ["if TYPE_CHECKING:\n    ", "def later():\n    "])
def test_a_foreign_package_may_be_known_in_its_one_place_but_not_imported_with_the_module(tmp_path: Path, guard: str) -> None:
    files = {"interop/agent_sdk/adapting.py": f"{guard}import claude_agent_sdk", "redis/client.py": f"{guard}import coredis"}
    house = build_house(tmp_path, files)
    assert [*faults_of_knowledge(house)] == []


@pytest.mark.parametrize("guard", ["", "if TYPE_CHECKING:\n    ", "def later():\n    "])
def test_a_cycle_inside_one_package_is_reported_with_its_path(tmp_path: Path, guard: str) -> None:
    files = {
        "client/turns.py": "from claude_transport.client.handlers import Handlers",
        "client/handlers.py": f"{guard}from .mcp import Bridge",
        "client/mcp.py": "from . import turns",
    }
    (fault,) = faults_of_cycles(build_house(tmp_path, files))
    handlers, mcp, turns = (f"{PACKAGE}.client.{name}" for name in ("handlers", "mcp", "turns"))
    assert fault == f"import cycle: {handlers} → {mcp} → {turns} → {handlers}"


def test_a_package_may_reexport_its_modules_but_they_may_not_import_it_back(tmp_path: Path) -> None:
    files = {
        "client/__init__.py": "from .turns import Turn",
        "client/turns.py": "from claude_transport.errors import Busy",
        "errors.py": "",
    }
    assert [*faults_of_cycles(build_house(tmp_path, files))] == []
    files["client/turns.py"] = "from claude_transport.client import Turn"
    assert len([*faults_of_cycles(build_house(tmp_path, files))]) == 1


@pytest.mark.parametrize("path", ["utils.py", "client/helpers.py", "protocol/common.py", "_internal/codec.py", "launch/types.py"])
def test_a_name_that_owns_nothing_is_reported(tmp_path: Path, path: str) -> None:
    assert any("names no noun" in fault for fault in faults_of_names(build_house(tmp_path, {path: ""})))


def test_a_shared_class_name_needs_a_sentence_and_a_sentence_needs_a_shared_class_name(tmp_path: Path) -> None:
    house = build_house(tmp_path, {"client/query.py": "class Turn: ...", "codex/session.py": "def make():\n    class Turn: ..."})
    assert [*faults_of_classes(house, {"Turn": "there are two agents"})] == []
    assert [("Turn" in fault, "client.query:1" in fault) for fault in faults_of_classes(house, {})] == [(True, True)]
    assert len([*faults_of_classes(house, {"Turn": "there are two agents", "Query": "gone"})]) == 1


def test_too_many_modules_beside_the_rooms_are_named(tmp_path: Path) -> None:
    files = {"__main__.py": "", "client/query.py": "", **{f"m{number}.py": "" for number in range(MAX_ROOT_MODULES)}}
    assert [*faults_of_root(build_house(tmp_path, files))] == []
    (fault,) = faults_of_root(build_house(tmp_path, {"loose.py": ""}))
    assert fault.startswith("10 modules are in no room, more than 9: loose, m0, ")


def test_excess_length_needs_a_sentence_and_a_sentence_needs_excess_length(tmp_path: Path) -> None:
    long_function = "def long():\n    '''Doc.'''\n" + "    pass\n" * MAX_FUNCTION_LINES
    fits = "def fits():\n    '''One\n    two.'''\n" + "    pass\n" * (MAX_FUNCTION_LINES - 1)
    house = build_house(tmp_path, {"backoff.py": long_function + fits})
    assert [fault.split(" has ")[0] for fault in faults_of_size(house, {})] == ["function claude_transport.backoff.long"]
    assert [*faults_of_size(house, {"claude_transport.backoff.long": "A reason."})] == []
    assert len([*faults_of_size(house, {"claude_transport.backoff.long": " ", "x": "A reason."})]) == 2


def test_a_module_with_one_importer_needs_a_sentence_and_a_sentence_needs_such_a_module(tmp_path: Path) -> None:
    files = {
        "errors.py": "",
        "backoff.py": "from claude_transport.errors import Busy",
        "transport.py": "from claude_transport.errors import Busy\nfrom claude_transport.backoff import Backoff",
        "__main__.py": "from claude_transport.app import main",
        "app/main.py": "def start():\n    from claude_transport.app import serve",
        "app/serve.py": "def run(): ...",
    }
    house = build_house(tmp_path, files)
    assert find_few_importers(house) == (
        [f"{PACKAGE}.{name}" for name in ("backoff", "errors", "transport")],
        [f"{PACKAGE}.{name}" for name in ("backoff", "transport")],
    )
    faults = [*faults_of_importers(house, {"transport": "A reason.", "errors": "Not needed.", "backoff": " "})]
    assert [fault.split(" is ")[0] for fault in faults] == ["backoff", "errors"]
    assert f"imported by {PACKAGE}.transport alone" in faults[0]


def few_of(tmp_path: Path, files: Mapping[str, str]) -> list[str]:
    """The modules of a made-up house that need a reason."""
    return [name.removeprefix(f"{PACKAGE}.") for name in find_few_importers(build_house(tmp_path, files))[1]]


@pytest.mark.parametrize(
    ("table", "few"),
    [
        ('{"sessions.store": "Store"}', []),
        ('{"sessions.store": ""}', ["sessions.store"]),
        ('{"sessions.other": "Other"}', ["sessions.store"]),
        ('{}, modules=("store",)', []),
        ('{}, modules=("other",)', ["sessions.store"]),
    ],
)
@pytest.mark.parametrize("importer", ["", "from claude_transport.sessions.store import Store"])
def test_a_module_that_a_door_shows_needs_no_sentence(tmp_path: Path, table: str, few: list[str], importer: str) -> None:
    door = f"a, b, c = lazy_names(__name__, {table})\n{importer}"
    assert (
        few_of(tmp_path, {"sessions/__init__.py": door, "sessions/store.py": "", "sessions/other.py": "x = lazy_names(__name__, {})"})
        == few
    )


AT_ONCE = "from claude_transport.launch import late"


@pytest.mark.parametrize(
    ("importer", "few"),
    [
        (AT_ONCE, True),
        (f"def f():\n    {AT_ONCE}", False),
        (f"class C:\n    async def f(self):\n        {AT_ONCE}", False),
        ("def f():\n    from .late import Late", False),
        ("def f():\n    return import_module('claude_transport.launch.late')", False),
        (f"{AT_ONCE}\ndef f():\n    {AT_ONCE}", True),
        (f"class C:\n    {AT_ONCE}", True),
        (f"try:\n    {AT_ONCE}\nexcept ImportError: ...", True),
        (f"if TYPE_CHECKING:\n    {AT_ONCE}", True),
        (f"if TYPE_CHECKING:\n    {AT_ONCE}\ndef f():\n    {AT_ONCE}", False),
        (f"if TYPE_CHECKING:\n    {AT_ONCE}\n{AT_ONCE}", True),
        (f"if sys.platform == 'win32':\n    {AT_ONCE}", False),
        (f"if os.name == 'nt':\n    {AT_ONCE}", False),
        (f"if sys.platform == 'win32':\n    pass\nelse:\n    {AT_ONCE}", True),
        (f"if wanted:\n    {AT_ONCE}", True),
        ("def f():\n    return load_late('claude_transport.launch.late', 'Late')", False),
        ("TABLE = {'x': ('claude_transport.launch.late', 'Late')}\ndef f(name):\n    return load_late(*TABLE[name])", False),
        ("TABLE = {'x': ('claude_transport.launch.late', 'Late')}", True),
        ("TABLE = {'x': 'claude_transport.launch.later'}\ndef f(name):\n    return load_late(TABLE[name], 'Late')", True),
        (f"{AT_ONCE}\ndef f():\n    return load_late('claude_transport.launch.late', 'Late')", True),
    ],
)
def test_a_module_that_is_loaded_only_when_it_is_needed_needs_no_sentence(tmp_path: Path, importer: str, few: bool) -> None:
    house = {"launch/late.py": "", "launch/__main__.py": importer}
    assert few_of(tmp_path, house) == (["launch.late"] if few else [])


RUN = "if __name__ == '__main__':\n    main()"


@pytest.mark.parametrize(
    ("script", "starter", "few"),
    [
        (RUN, "HERE = Path(__file__).with_name('relay.py')", False),
        (RUN, "HERE = Path(__file__).parent / 'run' / 'relay.py'", False),
        (RUN, "HERE = 'other.py'", True),
        ("main()", "HERE = 'relay.py'", True),
        (f"def f():\n    {RUN.partition(':')[0]}: ...", "HERE = 'relay.py'", True),
    ],
)
def test_a_module_that_runs_in_a_process_of_its_own_needs_no_sentence(tmp_path: Path, script: str, starter: str, few: bool) -> None:
    files = {"testing/run/relay.py": script, "testing/__main__.py": starter}
    assert few_of(tmp_path, files) == (["testing.run.relay"] if few else [])


@pytest.mark.parametrize(
    ("imported", "few"), [("from run.session import play", False), ("from session import play", True), ("from run import other", True)]
)
def test_what_only_such_a_script_imports_from_its_folder_needs_no_sentence(tmp_path: Path, imported: str, few: bool) -> None:
    files = {"testing/run/__main__.py": f"{imported}\n{RUN}", "testing/run/session.py": "", "testing/__main__.py": "F = '__main__.py'"}
    assert few_of(tmp_path, files) == (["testing.run.session"] if few else [])


def test_what_a_script_and_another_module_import_has_two_importers(tmp_path: Path) -> None:
    files = {
        "testing/run/__main__.py": f"from run.session import play\n{RUN}",
        "testing/run/session.py": "",
        "testing/__main__.py": "F = '__main__.py'\nfrom claude_transport.testing.run import session",
    }
    assert few_of(tmp_path, files) == []
