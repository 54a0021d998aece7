"""The folders use each other in one direction only.

C++:    os <- segment <- core <- env <- python, and operating-system headers in os/ alone.
Python: errors, config, schema <- buffer <- vector, service
        <- cluster, integrations, dashboard, cli.

The rules are functions from a source text to its violations, so that the rules themselves are
tested on texts that break them.
"""

import ast
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
CPP = ROOT / "src" / "cpp"
PUBLIC = ROOT / "include" / "replay_buffer"
PACKAGE = ROOT / "src" / "replay_buffer"

# ---- C++ -------------------------------------------------------------------------------------

CPP_ORDER = ["os", "segment", "core", "env", "python"]
PUBLIC_HEADERS_FOR_OS = {"replay_buffer/error.h"}
SIMD_HEADERS = {"emmintrin.h", "immintrin.h", "arm_neon.h"}  # the compiler's, not the system's
CODEC_HEADERS = {"blosc2.h"}

INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]', re.MULTILINE)
PLATFORM_TEST = re.compile(
    r"^\s*#\s*(?:if|elif|ifdef|ifndef)\b.*\b(?:__linux__|__APPLE__|_WIN32)\b", re.MULTILINE
)


def cpp_violations(folder: str, text: str) -> list[str]:
    """What in a C++ source of `folder` ("public" for include/) goes against the directions."""
    found = [
        f"includes {name}"
        for bracket, name in INCLUDE.findall(text)
        if not may_include(folder, name, angled=bracket == "<")
    ]
    if folder != "os":
        found += [f"asks for the platform: {line.strip()}" for line in PLATFORM_TEST.findall(text)]
    return found


def may_include(folder: str, name: str, *, angled: bool) -> bool:
    if name.startswith("replay_buffer/"):
        return folder != "os" or name in PUBLIC_HEADERS_FOR_OS
    if not angled:
        other = name.split("/")[0]
        if folder == "public" or other not in CPP_ORDER:
            return False
        return CPP_ORDER.index(other) <= CPP_ORDER.index(folder)
    if name == "Python.h" or name.startswith(("nanobind/", "numpy/")):
        return folder == "python"
    is_standard = "/" not in name and not name.endswith(".h")
    return (
        is_standard or folder == "os" or (folder == "core" and name in SIMD_HEADERS | CODEC_HEADERS)
    )


def cpp_sources() -> list[tuple[str, Path]]:
    sources = [("public", path) for path in sorted(PUBLIC.rglob("*.h"))]
    for path in sorted([*CPP.rglob("*.h"), *CPP.rglob("*.cc")]):
        sources.append((path.relative_to(CPP).parts[0], path))
    return sources


def test_every_cpp_source_lies_in_a_known_folder() -> None:
    assert {folder for folder, _ in cpp_sources()} <= {"public", *CPP_ORDER}


def test_cpp_includes_point_downwards() -> None:
    found = {
        str(path.relative_to(ROOT)): violations
        for folder, path in cpp_sources()
        if (violations := cpp_violations(folder, path.read_text()))
    }
    assert found == {}


@pytest.mark.parametrize(
    ("folder", "line"),
    [
        ("os", '#include "segment/layout.h"'),
        ("os", '#include "replay_buffer/schema.h"'),
        ("segment", '#include "core/buffer.h"'),
        ("core", '#include "env/host.h"'),
        ("core", '#include "buffer.h"'),
        ("core", "#include <Python.h>"),
        ("env", "#include <nanobind/nanobind.h>"),
        ("core", "#include <numpy/arrayobject.h>"),
        ("segment", "#include <sys/mman.h>"),
        ("core", "#  include <fcntl.h>"),
        ("python", "#include <unistd.h>"),
        ("core", "#ifdef __linux__"),
        ("python", "#if defined(__APPLE__) && 1"),
        ("public", '#include "core/buffer.h"'),
        ("public", "#include <sys/types.h>"),
    ],
)
def test_a_forbidden_line_of_cpp_is_noticed(folder: str, line: str) -> None:
    assert cpp_violations(folder, f"#pragma once\n{line}\n") != []


@pytest.mark.parametrize(
    ("folder", "line"),
    [
        ("os", "#include <sys/mman.h>"),
        ("os", '#include "replay_buffer/error.h"'),
        ("os", "#if defined(__linux__)"),
        ("segment", '#include "os/mapping.h"'),
        ("core", "#include <immintrin.h>"),
        ("core", "#if defined(__AVX2__)"),
        ("python", "#include <nanobind/nanobind.h>"),
        ("python", '#include "core/buffer.h"'),
        ("public", '#include "replay_buffer/error.h"'),
        ("public", "#include <span>"),
    ],
)
def test_an_allowed_line_of_cpp_is_accepted(folder: str, line: str) -> None:
    assert cpp_violations(folder, f"#pragma once\n{line}\n") == []


# ---- Python ----------------------------------------------------------------------------------

# A module may import those of its own line and of the lines above it. "_core" is the extension
# module; __init__ is the face of the package and imports what it offers.
PYTHON_ORDER = [
    {"_core"},
    {"errors", "config", "casting", "forking", "ragged", "schema"},
    {"arguments", "awaiting", "inference", "peeking", "shared_array", "views", "waiting"},
    {"outputs", "plan"},
    {"engine"},
    {"engines"},
    {
        *("async_calls", "buffer", "client", "conversion", "drawing", "reading", "sharing"),
        *("shortage", "stats"),
        *("circular", "hindsight", "pipeline", "view", "writer", "zero_copy"),
    },
    {"vector", "service"},
    {"cluster", "integrations", "dashboard", "cli", "testing"},
]
LAYER = {name: layer for layer, names in enumerate(PYTHON_ORDER) for name in names}


def python_violations(module: str, text: str) -> list[str]:
    """What in a source of replay_buffer.<module> goes against the directions."""
    if module == "__init__":
        return []
    own = module.split(".")[0]
    return [
        f"imports {other}"
        for other in package_imports(module, ast.parse(text))
        if LAYER.get(other, len(LAYER)) > LAYER[own]
    ]


def package_imports(module: str, tree: ast.Module) -> list[str]:
    """The top-level modules of the package that a module imports, or a name of its __init__."""
    found = []
    for node in ast.walk(tree):
        names = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = absolute_base(module, node)
            is_root = base == "replay_buffer"
            names = [f"{base}.{alias.name}" for alias in node.names] if is_root else [base]
        for parts in (name.split(".") for name in names):
            if parts[0] == "replay_buffer":
                found.append(parts[1] if len(parts) > 1 else "replay_buffer")
    return found


def absolute_base(module: str, node: ast.ImportFrom) -> str:
    if node.level == 0:
        return node.module or ""
    package = ["replay_buffer", *module.split(".")][: -node.level]
    return ".".join([*package, *([node.module] if node.module else [])])


def python_sources() -> list[tuple[str, Path]]:
    sources = []
    for path in sorted(PACKAGE.rglob("*.py")):
        sources.append((".".join(path.relative_to(PACKAGE).with_suffix("").parts), path))
    return sources


def test_every_python_module_has_a_layer() -> None:
    names = {module.split(".")[0] for module, _ in python_sources()} - {"__init__"}
    assert names <= set(LAYER), "give the new module a line in PYTHON_ORDER"


def test_python_imports_point_downwards() -> None:
    found = {
        str(path.relative_to(ROOT)): violations
        for module, path in python_sources()
        if module.split(".")[0] in {*LAYER, "__init__"}
        and (violations := python_violations(module, path.read_text()))
    }
    assert found == {}


@pytest.mark.parametrize(
    ("module", "line"),
    [
        ("errors", "from .buffer import ReplayBuffer"),
        ("config", "from replay_buffer.buffer import ReplayBuffer"),
        ("buffer", "from . import service"),
        ("buffer", "def f():\n    import replay_buffer.vector"),
        ("service.server", "from ..cluster import Shards"),
        ("service.__init__", "from ..cli import main"),
        ("vector", "from replay_buffer import ReplayBuffer"),
        ("engine", "from .client import Client"),
        ("engines.local", "from ..buffer import ReplayBuffer"),
        ("buffer", "import replay_buffer"),
    ],
)
def test_a_forbidden_import_is_noticed(module: str, line: str) -> None:
    assert python_violations(module, line) != []


@pytest.mark.parametrize(
    ("module", "line"),
    [
        ("buffer", "from .config import BufferConfig"),
        ("buffer", "from . import _core"),
        ("config", "from .errors import InvalidArgument"),
        ("service.server", "from ..buffer import ReplayBuffer"),
        ("service.server", "from .frames import Frame"),
        ("cli", "from .dashboard import page"),
        ("vector", "import numpy as np"),
    ],
)
def test_an_allowed_import_is_accepted(module: str, line: str) -> None:
    assert python_violations(module, line) == []


# ---- private attributes ----------------------------------------------------------------------


def private_reaches(text: str) -> list[str]:
    """Private attributes that a source takes from something whose class is in another module."""
    tree = ast.parse(text)
    nodes = list(ast.walk(tree))
    own = {node.name for node in nodes if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))}
    attributes = [node for node in nodes if isinstance(node, ast.Attribute)]
    own |= {node.attr for node in attributes if is_self(node.value) and is_store(node)}
    own |= {node.id for node in nodes if isinstance(node, ast.Name) and is_store(node)}
    own |= {node.value for node in nodes if isinstance(node, ast.Constant) and is_slot(node.value)}
    modules = {
        alias.asname or alias.name
        for node in nodes
        if isinstance(node, ast.Import)
        for alias in node.names
    }
    return [
        f"{ast.unparse(node)} in line {node.lineno}"
        for node in attributes
        if node.attr.startswith("_")
        and not node.attr.startswith("__")
        and node.attr not in own
        and not is_self(node.value)
        and ast.unparse(node.value) not in modules
    ]


def is_self(node: ast.expr) -> bool:
    return ast.unparse(node) in ("self", "cls", "super()")


def is_store(node: ast.Attribute | ast.Name) -> bool:
    return isinstance(node.ctx, ast.Store)


def is_slot(value: object) -> bool:
    return isinstance(value, str) and value.startswith("_") and value.isidentifier()


def test_nobody_reaches_into_the_private_attributes_of_another_module() -> None:
    found = {
        module: reaches
        for module, path in python_sources()
        if (reaches := private_reaches(path.read_text()))
    }
    assert found == {}


@pytest.mark.parametrize(
    "line",
    [
        "def f(buffer): return buffer._engine",
        "class A:\n    def f(self): return self._buffer._client",
        "def f(view): view._aim(None)",
        "class A:\n    def f(self): self._buffer._closed = True",
    ],
)
def test_a_reach_into_private_attributes_is_noticed(line: str) -> None:
    assert private_reaches(line) != []


@pytest.mark.parametrize(
    "line",
    [
        "class A:\n    def f(self): self._x = 1\ndef g(a): return a._x",
        "class A:\n    def _f(self): ...\ndef g(a): return a._f()",
        "class A(B):\n    def f(self): return self._of_b + super()._of_c",
        "import sys\nsys._getframe()",
    ],
)
def test_private_attributes_of_the_own_module_are_no_reach(line: str) -> None:
    assert private_reaches(line) == []


# ---- import replay_buffer --------------------------------------------------------------------

IMPORT_PROBE = """
import json, os, sys, threading
import numpy, numpy.random  # bring threads and modules of their own

def kernel_threads():
    return len(os.listdir("/proc/self/task")) if os.path.isdir("/proc/self/task") else 0

modules, threads, kernel = set(sys.modules), threading.active_count(), kernel_threads()
import replay_buffer
print(json.dumps({
    "modules": sorted({name.split(".")[0] for name in set(sys.modules) - modules}),
    "threads": threading.active_count() - threads,
    "kernel_threads": kernel_threads() - kernel,
}))
"""


def test_import_needs_only_numpy_and_starts_nothing() -> None:
    probe = subprocess.run(
        [sys.executable, "-I", "-c", IMPORT_PROBE], capture_output=True, text=True, timeout=60
    )
    assert probe.returncode == 0, probe.stderr
    seen = json.loads(probe.stdout)
    foreign = set(seen["modules"]) - set(sys.stdlib_module_names) - {"numpy", "replay_buffer"}
    assert foreign == set()
    assert seen["threads"] == 0
    assert seen["kernel_threads"] == 0
