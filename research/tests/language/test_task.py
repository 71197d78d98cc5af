"""The verifier reads a function and never runs it."""

from __future__ import annotations

import pytest

from trmon_research.language.task import Check, reward_of

WHOLE = '''def f(self, rows):
    """Return the sum."""
    total = 0
    for row in rows:
        total += len(row)
    self.total = total
    return total
'''
CHECK = Check(n_statements=5)


def reward(source: str, *, has_ended: bool = True, check: Check = CHECK) -> float:
    return reward_of(source, has_ended=has_ended, check=check)


def test_a_function_that_passes_the_check_earns_one() -> None:
    assert reward(WHOLE) == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("source", "has_ended"),
    [
        (WHOLE, False),
        (WHOLE + WHOLE, True),
        ("def f(a, b):\n", True),
        ("def f(a, b):\n    return (a\n", True),
        ("x = 1\n", True),
        ("(" * 5000, True),
    ],
)
def test_what_is_cut_or_is_not_one_function_earns_nothing(source: str, has_ended: bool) -> None:
    assert reward(source, has_ended=has_ended) == 0.0


@pytest.mark.parametrize(
    ("change", "lost"),
    [
        (("    return total\n", "    print(total)\n"), 0.4 / 3),  # returns nothing
        (("self.total = total", "total = total"), 0.4 / 3 / 2),  # one of two arguments is not read
        (("len(row)", "size(row)"), 0.4 / 3 / 5),  # one of five names is not known
        (("    self.total = total\n", "    self\n    pass\n"), 0.0),
        (("        total += len(row)\n", "        len(row)\n"), 0.0),
    ],
)
def test_each_part_of_the_check_counts(change: tuple[str, str], lost: float) -> None:
    assert reward(WHOLE.replace(*change)) == pytest.approx(1.0 - lost)


def test_statements_count_up_to_what_is_asked_and_texts_do_not() -> None:
    short = "def f(a):\n    'one'\n    'two'\n    return a\n"
    assert reward(short) == pytest.approx(0.6 + 0.4 / 5)
    assert reward(short, check=Check(n_statements=1)) == pytest.approx(1.0)


def test_names_that_the_body_binds_are_known() -> None:
    source = (
        "def f(a):\n    import os.path\n    from sys import argv as args\n    try:\n        x = [b for b in a]\n"
        "    except OSError as error:\n        raise error\n    with os.open(a) as file:\n        g = lambda c: c\n"
        "    return f, x, args, file, g\n"
    )
    assert reward(source) == pytest.approx(1.0)


def test_an_easy_check_asks_for_a_return_alone() -> None:
    easy = Check(n_statements=1, reads_arguments=False, reads_known_names=False)
    assert reward("def f(a):\n    return os\n", check=easy) == pytest.approx(1.0)
