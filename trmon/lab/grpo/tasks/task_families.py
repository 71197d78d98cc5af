"""The families of tasks by name."""

from __future__ import annotations

from collections.abc import Mapping

from trmon.lab.grpo.tasks.add_digits import AddDigits
from trmon.lab.grpo.tasks.close_brackets import CloseBrackets
from trmon.lab.grpo.tasks.sort_symbols import SortSymbols
from trmon.lab.grpo.tasks.token_task import TokenTask

TASK_FAMILIES: Mapping[str, TokenTask] = {"sort": SortSymbols(), "add": AddDigits(), "brackets": CloseBrackets()}
