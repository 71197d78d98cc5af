"""What the page is sent: every module and style sheet once, after those that it needs."""

from __future__ import annotations

import re

from trmon.web.assets import ASSETS
from trmon.web.bundle import bundle_module, bundle_styles

MODULES = {
    "app.js": 'import { twice as double } from "./sums.js";\nimport { say } from "./words.js";\n\nsay(double(1));\n',
    "sums.js": 'import { say } from "./words.js";\n\nconst LIMIT = 1;\nexport const twice = (n) => 2 * n * LIMIT;\n',
    "words.js": "export async function say() {}\nexport class Word {}\n",
}


def test_a_module_comes_after_what_it_imports_and_shares_no_names() -> None:
    assert bundle_module("app.js", MODULES).split("\n") == [
        "const $words = (() => {",
        "async function say() {}",
        "class Word {}",
        "return { say, Word };",
        "})();",
        "const $sums = (() => {",
        "const { say } = $words;",
        "",
        "const LIMIT = 1;",
        "const twice = (n) => 2 * n * LIMIT;",
        "return { twice };",
        "})();",
        "const $app = (() => {",
        "const { twice: double } = $sums;",
        "const { say } = $words;",
        "",
        "say(double(1));",
        "return {  };",
        "})();",
    ]


def test_styles_keep_their_order() -> None:
    sources = {
        "page.css": '@import "./a.css";\n@import "./vendor/b-1.css";\np {}\n',
        "a.css": "a {}",
        "vendor/b-1.css": "b {}",
    }
    assert bundle_styles("page.css", sources) == "a {}\nb {}\np {}\n"


def test_the_page_holds_every_module_once_and_nothing_is_left_to_fetch() -> None:
    script = ASSETS["app.js"].content.decode()
    modules = {path for path in ASSETS if path.endswith(".js") and "/" not in path} - {"theme.js"}
    assert sorted(re.findall(r"^const \$(\w+) = \(\(\) => \{$", script, re.MULTILINE)) == sorted(
        path.removesuffix(".js") for path in modules
    )
    assert not re.search(r"^(import|export)\b", script, re.MULTILINE)


def test_the_page_holds_every_style_sheet() -> None:
    styles = ASSETS["page.css"].content.decode()
    assert "@import" not in styles
    sheets = {path for path in ASSETS if path.endswith(".css")} - {"page.css"}
    assert [path for path in sheets if ASSETS[path].content.decode() not in styles] == []
