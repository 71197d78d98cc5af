"""The page's files: what a page names is what its view loads, and nothing is left over."""

from __future__ import annotations

import re
from importlib.resources import files

import pytest

from tests.web.conftest import Visiting
from trmon.web.routes import ASSETS, FOLDER, PAGES, PLOTS, VERSION

MODULES = {path: asset.content.decode() for path, asset in ASSETS.items() if path.endswith(".js") and "/" not in path}
SCRIPT = "theme.js"
MOST_FILES, MOST_LINES = 40, 500
PATHS = {
    "fleet": "/",
    "alerts": "/alerts",
    "compare": "/compare?runs=math/stale-8b,math/healthy-8b",
    "run": "/runs/math/stale-8b",
}


def test_every_module_is_reached_from_the_first_and_exports_what_others_import() -> None:
    reached = {"app.js", SCRIPT}
    for text in MODULES.values():
        reached |= set(re.findall(r'import\("\./([\w.]+)"\)', text))
        for names, module in re.findall(r'^import \{([^}]*)\} from "\./([\w.]+)";$', text, re.MULTILINE):
            reached.add(module)
            exported = re.findall(r"^export (?:async )?(?:function|const|class) (\w+)", MODULES[module], re.MULTILINE)
            assert {name.strip() for name in names.split(",")} <= set(exported)
    assert reached == set(MODULES)


def test_modules_are_few_and_none_is_long() -> None:
    styles = [entry for entry in files("trmon.web").joinpath("static").iterdir() if entry.name.endswith(".css")]
    texts = [*MODULES.values(), *(style.read_text() for style in styles)]
    assert len(texts) <= MOST_FILES
    assert max(text.count("\n") for text in texts) <= MOST_LINES


def test_the_folder_is_named_after_what_is_in_it() -> None:
    assert re.fullmatch(r"[0-9a-f]{20}", VERSION)
    assert FOLDER.endswith(VERSION)
    assert "@import" not in ASSETS["page.css"].content.decode()


@pytest.mark.parametrize("view", PATHS)
def test_a_view_loads_the_modules_that_its_page_names(view: str, visiting: Visiting) -> None:
    named = re.findall(rf'(?:href|src)="{FOLDER}/([\w./-]+\.js)"', PAGES[view].content.decode())
    tab = visiting()
    tab.go(PATHS[view])
    loaded = [url.rpartition(f"{FOLDER}/")[2] for url in tab.asked if url.endswith(".js")]
    assert set(loaded[: len(named)]) == set(named)
    assert 10_000 < tab.received_bytes < 150_000
    assert (PLOTS in named) == (view in ("run", "compare"))
