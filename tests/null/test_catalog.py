"""Discovery through entry points: nothing imported, nothing dropped, every fault told with who is to blame."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from scellis_core.catalog import Catalog, Hooks, suggest
from scellis_core.errors import CatalogError, ContractError, RecordError, ScellisError

LION = """
from scellis_core.plugin import BlockParams, Optimizer, Phase, field

class LionParams(BlockParams):
    lr: float = field(1e-4, gt=0.0, unit="1/step", help="learning rate")
    beta: float = field(0.9, ge=0.0, lt=1.0, help="momentum")
    mode: str = field("plain", min_length=1, help="how")
    steps: int | None = field(None, ge=1, unit="steps", help="until when")

LION = Optimizer(
    id="training/optimizer/{name}@{version}", title="Lion", summary="sign momentum", params=LionParams,
    source="Chen et al., 2023", phases=(Phase("elements", lambda p, g, s, hp: (p - hp.lr * g, {{}})),),
)
"""

Install = Callable[..., Path]


def lion(name: str = "lynx", version: int = 1) -> str:
    return LION.format(name=name, version=version)


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Install:
    """Lay out a distribution as pip would: its files, and a .dist-info with entry points and RECORD."""
    site = tmp_path / "site"
    site.mkdir()
    monkeypatch.syspath_prepend(str(site))
    before = set(sys.modules)

    def add(
        name: str,
        points: Mapping[str, str],
        files: Mapping[str, str],
        *,
        version: str = "0.1",
        group: str = "scellis.blocks",
        to: str = "site",
    ) -> Path:
        root = tmp_path / to
        info = root / f"{name.replace('-', '_')}-{version}.dist-info"
        info.mkdir(parents=True)
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
        rows = "".join(f"{k} = {v}\n" for k, v in points.items())
        (info / "entry_points.txt").write_text(f"[{group}]\n{rows}")
        for path, text in files.items():
            file = root / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text)
        (info / "RECORD").write_text("".join(f"{p},,\n" for p in files) + f"{info.name}/METADATA,,\n")
        return root

    yield add  # pyright: ignore[reportReturnType]
    for module in set(sys.modules) - before:
        if module.startswith(("lion", "scellis_plugin_files", "bell", "shared", "oops")):
            del sys.modules[module]


def text_of(call: Callable[[], object]) -> str:
    with pytest.raises(ScellisError) as caught:
        call()
    return str(caught.value)


def state(catalog: Catalog, block_id: str) -> list[str]:
    return [e.state for e in catalog.entries(load=True) if e.id == block_id]


ID = "training/optimizer/lynx@1"


def test_listing_imports_no_block(install: Install) -> None:
    install("scellis-lion", {ID: "lion_a:LION"}, {"lion_a.py": lion()})
    catalog = Catalog.discover()
    (entry,) = [e for e in catalog.entries("training/optimizer") if e.id == ID]
    assert "lion_a" not in sys.modules
    assert entry.to_json() == {
        "id": ID,
        "title": "",
        "distribution": "scellis-lion",
        "version": "0.1",
        "module": "lion_a:LION",
        "state": "ok",
    }
    (entry,) = [e for e in catalog.entries("training", load=True) if e.id == ID]
    assert (entry.title, entry.state) == ("Lion", "ok")


def test_resolve_is_lazy_and_cached(install: Install) -> None:
    install("scellis-lion", {ID: "lion_a:LION"}, {"lion_a.py": lion()})
    catalog = Catalog.discover()
    block = catalog.resolve("training/optimizer/lynx", "run.sml:8:14 optimizer.block_id")
    assert block is catalog.resolve(ID)
    assert block.id == ID


def test_a_bare_id_is_the_newest_version_by_number(install: Install) -> None:
    points = {f"training/optimizer/lynx@{v}": f"lion_v{v}:LION" for v in (2, 9, 10)}
    install("scellis-lion", points, {f"lion_v{v}.py": lion(version=v) for v in (2, 9, 10)})
    catalog = Catalog.discover()
    assert catalog.find("training/optimizer/lynx") == "training/optimizer/lynx@10"
    assert catalog.resolve("training/optimizer/lynx@9").id == "training/optimizer/lynx@9"
    assert text_of(lambda: catalog.find("training/optimizer/lynx@3", "run.sml:8:14 optimizer.block_id")) == (
        "run.sml:8:14 optimizer.block_id: expected an installed version of training/optimizer/lynx, got "
        "'training/optimizer/lynx@3'; try training/optimizer/lynx@2, training/optimizer/lynx@9, "
        "training/optimizer/lynx@10"
    )


def test_a_broken_newest_version_is_not_passed_over(install: Install) -> None:
    points = {ID: "lion_a:LION", "training/optimizer/lynx@2": "lion_b:LION"}
    install("scellis-lion", points, {"lion_a.py": lion(), "lion_b.py": "import not_there_at_all\n"})
    text = text_of(lambda: Catalog.discover().resolve("training/optimizer/lynx"))
    assert text == (
        "block training/optimizer/lynx@2: expected training/optimizer/lynx@2 to load, got plugin scellis-lion 0.1 is "
        "broken: ModuleNotFoundError: No module named 'not_there_at_all'; try reinstalling "
        "scellis-lion, or another block"
    )


def test_one_id_from_two_distributions(install: Install) -> None:
    install("scellis-lion", {ID: "lion_a:LION"}, {"lion_a.py": lion()})
    install("zoo-pack", {ID: "lion_b:LION"}, {"lion_b.py": lion()}, version="2.0")
    catalog = Catalog.discover()
    assert state(catalog, ID) == ["clash: both of scellis-lion 0.1 and zoo-pack 2.0"] * 2
    assert text_of(lambda: catalog.resolve(ID, "run.sml:8:14 optimizer.block_id")) == (
        "run.sml:8:14 optimizer.block_id: expected one distribution that provides training/optimizer/lynx@1, got "
        "both of scellis-lion 0.1 and zoo-pack 2.0; try uninstalling one of them"
    )


def test_one_file_of_two_distributions(install: Install) -> None:
    install("scellis-lion", {ID: "lion_a:LION"}, {"lion_a.py": lion()})
    install("zoo-pack", {"training/optimizer/tiger@1": "lion_a:TIGER"}, {"lion_a.py": lion()})
    install("scellis-fox", {"training/optimizer/fox@1": "lion_f:LION"}, {"lion_f.py": lion("fox")})
    catalog = Catalog.discover()
    expected = ["broken: file lion_a.py is owned by scellis-lion and zoo-pack"]
    assert state(catalog, ID) == expected
    assert state(catalog, "training/optimizer/tiger@1") == expected
    assert state(catalog, "training/optimizer/fox@1") == ["ok"]
    assert "owned by scellis-lion and zoo-pack" in text_of(lambda: catalog.resolve(ID))
    assert "lion_a" not in sys.modules


def test_a_module_shadowed_by_another_folder(install: Install, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install("scellis-lion", {ID: "lion_a:LION"}, {"lion_a.py": lion()})
    (tmp_path / "early").mkdir()
    (tmp_path / "early" / "lion_a.py").write_text(lion())
    monkeypatch.syspath_prepend(str(tmp_path / "early"))
    (found,) = state(Catalog.discover(), ID)
    assert found.startswith("broken: module lion_a is imported from ")


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("raise SystemExit('no')\n", "SystemExit: no"),
        ("def (\n", "SyntaxError: invalid syntax (oops_a.py, line 1)"),
        ("LION = 3\n", "it is an int, not a block"),
        ("other = 1\n", "oops_a has no LION"),
        (lion("tiger"), "it says that its id is training/optimizer/tiger@1"),
        (
            "from scellis_core.plugin import *\n"
            "LION = Metric(id='training/optimizer/lynx@1', title='', summary='', params=BlockParams, source='', "
            "fn=lambda: {})\n",
            "it is a Metric, not an Optimizer as its id says",
        ),
        (lion().replace("params=LionParams", "params=int"), "its params are no subclass of BlockParams"),
    ],
)
def test_broken_plugins_are_listed_and_stop_nothing(install: Install, source: str, reason: str) -> None:
    install("scellis-oops", {ID: "oops_a:LION"}, {"oops_a.py": source})
    install("scellis-fox", {"training/optimizer/fox@1": "lion_f:LION"}, {"lion_f.py": lion("fox")})
    catalog = Catalog.discover()
    assert state(catalog, ID) == [f"broken: {reason}"]
    assert state(catalog, "training/optimizer/fox@1") == ["ok"]
    assert reason in text_of(lambda: catalog.resolve(ID))


@pytest.mark.parametrize(
    ("name", "value", "reason"),
    [
        ("lion", "lion_a:LION", "its name 'lion' is no block id such as layer/linear@1"),
        (
            "training/optimizer/lynx",
            "lion_a:LION",
            "its name 'training/optimizer/lynx' is no block id such as layer/linear@1",
        ),
        (ID, "lion_a", "its entry point 'lion_a' names a module, not a block such as lion:LION"),
        ("zoo/lynx@1", "lion_z:LION", "there is no family zoo"),
    ],
)
def test_wrong_entry_points(install: Install, name: str, value: str, reason: str) -> None:
    other = lion().replace("training/optimizer/lynx@1", "zoo/lynx@1")
    install("scellis-lion", {name: value}, {"lion_a.py": lion(), "lion_z.py": other})
    catalog = Catalog.discover()
    assert state(catalog, name) == [f"broken: {reason}"]


def test_unknown_ids_name_the_nearest(install: Install) -> None:
    install("scellis-lion", {ID: "lion_a:LION"}, {"lion_a.py": lion()})
    catalog = Catalog.discover()
    with pytest.raises(CatalogError) as caught:
        catalog.resolve("codec/safetensor")
    assert str(caught.value) == (
        "block codec/safetensor: expected the id of an installed block, got 'codec/safetensor'; "
        "try one of: codec/safetensors"
    )
    with pytest.raises(RecordError) as found:
        catalog.resolve("layer/lineer@1", "run.sml:3:9 graph.h.block_id")
    assert str(found.value) == (
        "run.sml:3:9 graph.h.block_id: expected the id of an installed block, got 'layer/lineer@1'; try one of: "
        "layer/linear"
    )
    assert "try training/optimizer/lynx" in text_of(lambda: catalog.resolve("optimizer/lynx"))
    for wrong, family, hint in (
        ("training/optimizer", None, "a block of that family: scellis catalog training/optimizer"),
        ("zoo/panda", "zoo", "`scellis catalog`: no block of zoo is installed"),
    ):
        with pytest.raises(RecordError) as missing:
            catalog.resolve(wrong, "run.sml:3:9 x.block_id", family)
        assert str(missing.value) == (
            f"run.sml:3:9 x.block_id: expected the id of an installed block, got '{wrong}'; try {hint}"
        )


def test_the_family_is_checked(install: Install) -> None:
    install("scellis-lion", {ID: "lion_a:LION"}, {"lion_a.py": lion()})
    catalog = Catalog.discover()
    text = text_of(lambda: catalog.resolve(ID, "run.sml:4:9 loss.block_id", "training/loss"))
    assert text.startswith("run.sml:4:9 loss.block_id: expected a block of family training/loss, got ")
    assert "lion_a" not in sys.modules
    assert text_of(lambda: catalog.entries("optimiser")) == (
        "catalog: expected a family of blocks, got 'optimiser'; try one of: training/optimizer"
    )
    assert text_of(lambda: catalog.entries("training/optimizer/adam")) == (
        "catalog: expected a family of blocks, got 'training/optimizer/adam'; "
        "try scellis catalog show training/optimizer/adam"
    )


def test_one_file_plugins(tmp_path: Path) -> None:
    folder = tmp_path / "plugins"
    folder.mkdir()
    (folder / "lion.py").write_text(lion() + "ALIAS = LION\n")
    (folder / "bad.py").write_text("1 / 0\n")
    (folder / "none.py").write_text("x = 1\n")
    catalog = Catalog.discover(folder)
    assert state(catalog, ID) == ["ok"]
    assert state(catalog, "bad.py") == ["broken: ZeroDivisionError: division by zero"]
    assert state(catalog, "none.py") == ["broken: it holds no block"]
    origin = catalog.origin(ID)
    assert (origin.distribution, origin.version) == ("file lion.py", origin.sha256[:12])
    assert text_of(lambda: Catalog.discover(tmp_path / "nope")).startswith("plugins folder ")


def test_a_one_file_plugin_may_clash_with_an_installed_one(install: Install, tmp_path: Path) -> None:
    install("scellis-lion", {ID: "lion_a:LION"}, {"lion_a.py": lion()})
    folder = tmp_path / "plugins"
    folder.mkdir()
    (folder / "lion.py").write_text(lion())
    text = text_of(lambda: Catalog.discover(folder).resolve(ID))
    assert "both of scellis-lion 0.1 and file lion.py" in text


def test_describe_and_origin(install: Install) -> None:
    import hashlib

    install("scellis-lion", {ID: "lion_a:LION"}, {"lion_a.py": lion()})
    catalog = Catalog.discover()
    shown = catalog.describe("training/optimizer/lynx")
    assert shown["parameters"] == [
        {
            "name": "lr",
            "type": "number",
            "required": False,
            "default": 1e-4,
            "range": "> 0.0",
            "choices": None,
            "unit": "1/step",
            "help": "learning rate",
        },
        {
            "name": "beta",
            "type": "number",
            "required": False,
            "default": 0.9,
            "range": ">= 0.0 and < 1.0",
            "choices": None,
            "unit": "1",
            "help": "momentum",
        },
        {
            "name": "mode",
            "type": "text",
            "required": False,
            "default": "plain",
            "range": "at least 1 characters",
            "choices": None,
            "unit": "1",
            "help": "how",
        },
        {
            "name": "steps",
            "type": "integer or null",
            "required": False,
            "default": None,
            "range": ">= 1",
            "choices": None,
            "unit": "steps",
            "help": "until when",
        },
    ]
    assert {
        k: shown[k] for k in ("source", "deviation", "capabilities", "states", "distribution", "version", "state")
    } == {
        "source": "Chen et al., 2023",
        "deviation": "none",
        "capabilities": [],
        "states": {},
        "distribution": "scellis-lion",
        "version": "0.1",
        "state": "ok",
    }
    assert shown["sha256"] == hashlib.sha256(lion().encode()).hexdigest() == catalog.origin(ID).sha256


@pytest.mark.parametrize(
    ("raw", "text"),
    [
        (
            {"learning_rate": 1e-3},
            "at learning_rate: expected a parameter of training/optimizer/lynx@1, got 'learning_rate'; try lr",
        ),
        ({"lr": -0.1}, "at lr: expected number > 0.0 (1/step), got -0.1; try 0.0001"),
        ({"lr": "1e-3"}, "at lr: expected number > 0.0 (1/step), got '1e-3'; try 0.001"),
        ({"steps": 3.0}, "at steps: expected integer >= 1 (steps), got 3.0; try 3"),
        ({"beta": True}, "at beta: expected number >= 0.0 and < 1.0, got true; try 0.9"),
    ],
)
def test_parameters_are_checked_in_place(install: Install, raw: dict[str, object], text: str) -> None:
    install("scellis-lion", {ID: "lion_a:LION"}, {"lion_a.py": lion()})
    catalog = Catalog.discover()
    block = catalog.resolve(ID)
    assert text_of(lambda: catalog.validate(block, raw, lambda path: "at " + ".".join(map(str, path)))) == text


def test_parameters_must_be_plain_data(install: Install) -> None:
    install("scellis-lion", {ID: "lion_a:LION"}, {"lion_a.py": lion()})
    catalog = Catalog.discover()
    with pytest.raises(ContractError, match="plain data as parameters"):
        catalog.validate(catalog.resolve(ID), {"lr": object()}, lambda path: "here")


@pytest.mark.parametrize(
    ("name", "choices", "hint"),
    [
        ("learning_rate", ["lr", "weight_decay", "beta1"], "lr"),
        ("wd", ["lr", "weight_decay", "beta1"], "weight_decay"),
        ("num_layers", ["width", "layers", "heads"], "layers"),
        ("n_head", ["width", "layers", "heads"], "heads"),
        ("d_model", ["width", "layers", "heads"], "width"),
        ("out_features", ["features", "bias"], "features"),
        ("epsilon", ["eps", "momentum"], "eps"),
        ("r", ["rank", "alpha", "targets"], "rank"),
        ("momentom", ["momentum", "lr"], "one of: momentum"),
        ("zzz", ["momentum", "lr"], "one of: lr, momentum"),
    ],
)
def test_suggestions(name: str, choices: list[str], hint: str) -> None:
    assert suggest(name, choices) == hint


HOOK = """
from scellis_core.plugin import hookimpl

seen = []

@hookimpl
def {name}(event):
    {body}
"""


def test_hooks(install: Install) -> None:
    files = {
        "bell_good.py": HOOK.format(name="scellis_event", body="seen.append(event)"),
        "bell_typo.py": HOOK.format(name="scellis_evnt", body="pass"),
        "bell_args.py": HOOK.format(name="scellis_event", body="pass").replace("(event)", "(happening)"),
        "bell_late.py": HOOK.format(name="scellis_event", body="raise ValueError('rang twice')"),
        "bell_import.py": "import not_there_at_all\n",
        "bell_none.py": "x = 1\n",
    }
    points = {name.removesuffix(".py"): name.removesuffix(".py") for name in files}
    install("scellis-bell", points, files, group="scellis.hooks")
    hooks = Hooks.discover()
    states = {p.name: p.state for p in hooks.plugins if p.distribution == "scellis-bell"}
    assert states["bell_good"] == states["bell_late"] == "ok"
    assert states["bell_import"] == "broken: ModuleNotFoundError: No module named 'not_there_at_all'"
    assert "unknown hook 'scellis_evnt'" in states["bell_typo"]
    assert "{'happening'}" in states["bell_args"]
    assert states["bell_none"].endswith("it implements none of scellis_event, scellis_commands")
    failures = hooks.event("step 1")
    assert [str(f) for f in failures] == [
        "plugin scellis-bell 0.1 scellis_event: expected a hook that returns, got ValueError: rang twice; try removing "
        "the plugin"
    ]
    assert hooks.event("step 2") == []
    assert sys.modules["bell_good"].seen == ["step 1", "step 2"]
    assert {p.name: p.state for p in hooks.plugins}["bell_late"] == "broken: ValueError: rang twice"


def test_two_hook_plugins_of_one_name_both_load(install: Install) -> None:
    for i in (1, 2):
        files = {f"bell_{i}.py": HOOK.format(name="scellis_event", body="seen.append(event)")}
        install(f"scellis-bell{i}", {"bell": f"bell_{i}"}, files, group="scellis.hooks")
    Hooks.discover().event(7)
    assert sys.modules["bell_1"].seen == sys.modules["bell_2"].seen == [7]


def test_no_numpy_and_no_block_is_imported() -> None:
    code = """
        import sys
        from scellis_core.catalog import Catalog, Hooks
        catalog = Catalog.discover()
        assert len(catalog.entries()) > 40
        Hooks.discover()
        assert not [m for m in sys.modules if m.partition(".")[0] in ("numpy", "wgpu", "scellis_layers")]
    """
    subprocess.run([sys.executable, "-c", textwrap.dedent(code)], check=True)
