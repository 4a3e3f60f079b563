"""Rules of the source that a reader can rely on, checked by walking it.

Arrows between packages point down only; the inner packages know no network, clock or torch;
nothing is ever unpickled; every module says what it is and what it offers.
"""

import ast
import importlib
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import colonnade

SOURCE = Path(colonnade.__file__).parent
MODULES = {
    ".".join(("colonnade", *path.relative_to(SOURCE).with_suffix("").parts)): path
    for path in sorted(SOURCE.rglob("*.py"))
}

# Which packages each package may import. `party` is on top and may use everything.
ARROWS = {
    "errors": set(),
    "native": set(),
    "ring": {"native", "errors"},
    "crypto": {"ring", "native", "errors"},
    "wire": {"errors"},
    "protocol": {"crypto", "ring", "wire", "errors"},
    "data": {"protocol", "errors"},
    "nn": {"protocol", "ring", "crypto", "wire", "data", "errors"},
    "transport": {"wire", "errors"},
    "simulation": {"nn", "protocol", "ring", "transport", "wire", "data"},
}
# `party` uses everything; the two entry points start it.
TOP = {"party", "__init__", "__main__"}

INNER = {"ring", "crypto", "wire", "protocol"}
FORBIDDEN_INSIDE = {"socket", "ssl", "threading", "multiprocessing", "asyncio", "selectors"} | {
    "logging",
    "time",
    "datetime",
    "torch",
    "random",
    "concurrent",
    "requests",
}
UNSAFE_MODULES = {"pickle", "cPickle", "dill", "cloudpickle", "joblib", "marshal", "shelve"}
UNSAFE_CALLS = {"eval", "exec", "compile", "__import__"}


def package(module: str) -> str:
    return module.split(".")[1]


def imports(tree: ast.AST) -> Iterator[str]:
    """Dotted names of everything imported, wherever in the file."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "relative import"
            yield node.module or ""
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def check_arrows(module: str, source: str) -> None:
    if package(module) in TOP:
        return
    assert package(module) in ARROWS, f"{module}: a new package needs a row in ARROWS"
    allowed = ARROWS[package(module)]
    for name in imports(ast.parse(source)):
        parts = name.split(".")
        if parts[0] != "colonnade" or len(parts) < 2:
            continue
        assert parts[1] in allowed | {package(module)}, f"{module} imports {name}"


def check_inner(module: str, source: str) -> None:
    for name in imports(ast.parse(source)):
        assert name.split(".")[0] not in FORBIDDEN_INSIDE, f"{module} imports {name}"
        assert not name.startswith("numpy.random"), f"{module} imports {name}"


def check_safe(module: str, source: str) -> None:
    tree = ast.parse(source)
    for name in imports(tree):
        assert name.split(".")[0] not in UNSAFE_MODULES, f"{module} imports {name}"
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        called = ast.unparse(node.func)
        assert called not in UNSAFE_CALLS, f"{module}:{node.lineno} calls {called}"
        assert called not in {"torch.load", "np.load", "numpy.load"}, f"{module}:{node.lineno}"
        assert not called.startswith(("np.random.", "numpy.random.")), f"{module}:{node.lineno}"
        shell = [k for k in node.keywords if k.arg == "shell"]
        assert not shell, f"{module}:{node.lineno} starts a shell"


def check_module_state(module: str, source: str) -> None:
    """A name bound at module level to something mutable must be a CONSTANT in spelling."""
    for node in ast.parse(source).body:
        targets: list[ast.expr] = []
        if isinstance(node, ast.Assign):
            targets, value = node.targets, node.value
        elif isinstance(node, ast.AnnAssign) and node.value is not None:
            targets, value = [node.target], node.value
        for target in targets:
            mutable = isinstance(value, ast.List | ast.Dict | ast.Set | ast.ListComp | ast.DictComp)
            mutable |= isinstance(value, ast.Call) and ast.unparse(value.func) in {
                "list", "dict", "set", "defaultdict", "deque", "threading.Lock", "Counter",
            }  # fmt: skip
            name = ast.unparse(target)
            dunder = name.startswith("__") and name.endswith("__")
            assert not mutable or dunder or name.isupper(), f"{module} holds state in {name}"
    for node in ast.walk(ast.parse(source)):
        assert not isinstance(node, ast.Global), f"{module}:{node.lineno} declares a global"


# Words in the type of a field that holds rows, ids, shares or ciphertexts.
PRIVATE = re.compile(r"NDArray|Matrix\b|DataFrame|csr_|list\[bytes\]|Residues|Tensor\b")
# A party's own results, and both parties in one process: nobody is there to hide them from.
SHOWN = {"colonnade.nn.training", "colonnade.simulation"}


def check_reprs(module: str, source: str) -> None:
    """No dataclass prints what it holds of somebody's data; classes with an own repr may."""
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.ClassDef):
            continue
        if not any("dataclass" in ast.unparse(decorator) for decorator in node.decorator_list):
            continue
        if any(isinstance(f, ast.FunctionDef) and f.name == "__repr__" for f in node.body):
            continue
        for field in node.body:
            if isinstance(field, ast.AnnAssign) and PRIVATE.search(ast.unparse(field.annotation)):
                hidden = field.value is not None and "repr=False" in ast.unparse(field.value)
                name = ast.unparse(field.target)
                assert hidden, f"{module}: {node.name}.{name} shows in a repr; want repr=False"


@pytest.mark.parametrize("module", MODULES)
def test_arrows_point_down(module):
    check_arrows(module, MODULES[module].read_text())


def test_control_a_package_without_a_row_is_refused():
    with pytest.raises(AssertionError, match="needs a row"):
        check_arrows("colonnade.elsewhere.thing", "import colonnade.errors")


def test_the_arrows_make_no_circle():
    open_packages = dict(ARROWS)
    while open_packages:
        bottom = [name for name, uses in open_packages.items() if not uses & open_packages.keys()]
        assert bottom, f"a circle in {sorted(open_packages)}"
        open_packages = {name: uses for name, uses in open_packages.items() if name not in bottom}


@pytest.mark.parametrize("module", [m for m in MODULES if package(m) in INNER])
def test_inner_packages_know_no_network_clock_or_torch(module):
    check_inner(module, MODULES[module].read_text())


@pytest.mark.parametrize("module", MODULES)
def test_nothing_is_unpickled_evaluated_or_drawn_from_an_unsafe_generator(module):
    check_safe(module, MODULES[module].read_text())


@pytest.mark.parametrize("module", MODULES)
def test_no_module_holds_state(module):
    check_module_state(module, MODULES[module].read_text())


@pytest.mark.parametrize("module", [m for m in MODULES if m not in SHOWN])
def test_no_repr_shows_data(module):
    check_reprs(module, MODULES[module].read_text())


@pytest.mark.parametrize(
    ("check", "source"),
    [
        (check_arrows, "from colonnade.nn import plan"),
        (check_arrows, "def f():\n    import colonnade.transport.tls"),
        (check_arrows, "from colonnade import party"),
        (check_inner, "import torch.nn as nn"),
        (check_inner, "from time import sleep"),
        (check_inner, "from numpy.random import default_rng"),
        (check_safe, "import pickle"),
        (check_safe, "import torch\ntorch.load('x')"),
        (check_safe, "eval('1')"),
        (check_safe, "np.random.rand()"),
        (check_safe, "run('ls', shell=True)"),
        (check_reprs, "@dataclass\nclass A:\n    x: NDArray[np.int64]"),
        (
            check_reprs,
            "@dataclass(frozen=True)\nclass A:\n    ids: list[bytes] = field(hash=False)",
        ),
        (check_module_state, "cache = {}"),
        (check_module_state, "seen: list[int] = []"),
        (check_module_state, "def f():\n    global x\n    x = 1"),
    ],
)
def test_control_the_rules_see_what_breaks_them(check, source):
    with pytest.raises(AssertionError):
        check("colonnade.ring.z128", source)


@pytest.mark.parametrize("module", MODULES)
def test_every_module_says_what_it_is_and_offers(module):
    tree = ast.parse(MODULES[module].read_text())
    first = (ast.get_docstring(tree) or "").split("\n\n")[0].replace("\n", " ")
    assert re.search(r"[.?:]( |$)", first), (
        f"{module} needs a docstring that starts with a sentence"
    )
    named = [
        node.targets[0]
        for node in tree.body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__"
    ]
    has_names = any(
        isinstance(node, ast.FunctionDef | ast.ClassDef) and not node.name.startswith("_")
        for node in tree.body
    )
    if named:
        loaded = importlib.import_module(module.removesuffix(".__init__"))
        offered = loaded.__all__
        assert len(set(offered)) == len(offered)
        for name in offered:
            assert hasattr(loaded, name), f"{module}.__all__ names {name}, which is not there"
    else:
        assert not has_names, f"{module} has public names and no __all__"


# -- protocols: steps in the docstring and in the code ---------------------------------------------

TAG = re.compile(r"\b([AB])(\d{1,2})(?:-[AB]?(\d{1,2}))?\b")
PROTOCOLS = {
    # The roles, and further files that hold steps of the same protocol.
    "protocol/matmul.py": ("protocol/matmul_steps.py",),
    "protocol/agreement.py": (),
    "protocol/psi/dh.py": ("protocol/psi/exchange.py", "protocol/psi/group.py"),
}


def tags(text: str) -> set[str]:
    """A1, B3-B5 and the like, ranges spelled out."""
    found = set()
    for party, first, last in TAG.findall(text):
        found |= {f"{party}{n}" for n in range(int(first), int(last or first) + 1)}
    return found


def code_text(source: str, *, without_head: bool) -> str:
    """Comments and docstrings of a file; the module's own docstring left out if asked."""
    head = ast.get_docstring(ast.parse(source), clean=False) or ""
    return source.replace(head, "", 1) if without_head else source


def check_steps(protocol: str, others: tuple[str, ...]) -> None:
    source = (SOURCE / protocol).read_text()
    told = tags(ast.get_docstring(ast.parse(source)) or "")
    parts = [code_text(source, without_head=True)]
    parts += [code_text((SOURCE / other).read_text(), without_head=True) for other in others]
    done = set().union(*(tags(part) for part in parts))
    assert told, f"{protocol} tells no steps"
    assert told == done, (
        f"{protocol}: only told {sorted(told - done)}, only done {sorted(done - told)}"
    )


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_the_steps_of_a_protocol_are_tagged_in_its_code(protocol):
    check_steps(protocol, PROTOCOLS[protocol])


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_protocol_ends_its_docstring_with_what_leaks(protocol):
    head = ast.get_docstring(ast.parse((SOURCE / protocol).read_text())) or ""
    assert re.search(r"^Leaks", head, re.MULTILINE)


def test_every_message_says_what_it_shows():
    from colonnade.wire.messages import Message

    for module in MODULES:
        if "messages" in module or package(module) in {"protocol", "nn", "party", "wire"}:
            importlib.import_module(module.removesuffix(".__init__"))

    def kinds(base: type[Message]) -> Iterator[type[Message]]:
        for kind in base.__subclasses__():
            yield kind
            yield from kinds(kind)

    own = [kind for kind in kinds(Message) if kind.__module__.startswith("colonnade.")]
    assert len(own) > 15
    for kind in own:
        assert re.fullmatch(r"[a-z_]+\.[a-z_]+/\d+", kind.TAG), kind
        assert kind.LEAKS, kind
    assert len({kind.TAG for kind in own}) == len(own)
