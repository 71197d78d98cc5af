"""The folder of examples: each is short, listed and tested."""

from pathlib import Path

from tests.examples.running_example import EXAMPLES

TESTS = Path(__file__).parents[1]


def test_every_example_is_short_listed_documented_and_tested() -> None:
    readme = (EXAMPLES / "README.md").read_text()
    page = (TESTS.parent / "docs/integrations/your-own-trainer.md").read_text()
    scripts = sorted(EXAMPLES.glob("*_grpo.py"))
    assert len(scripts) == 7
    run_by = [path.read_text() for path in TESTS.glob("**/examples/test_*.py")]
    for script in scripts:
        assert f"`{script.name}`" in readme
        assert f"examples/{script.name}" in page
        assert any(f'"{script.stem}"' in tests for tests in run_by), script.name
    lengths = {path.name: len(path.read_text().splitlines()) for path in EXAMPLES.glob("*.py")}
    assert {name: n for name, n in lengths.items() if n > 80 and name != "faults_trl.py"} == {}
