"""Runs a command confined as by deploy/trmon.service, without systemd: `confined.py STATE COMMAND...`.

Its own mounts, of which only STATE is writable; no capabilities; the unit's system calls and address families; no
memory that is writable and executable; its umask.
"""

from __future__ import annotations

import ctypes
import errno
import os
import re
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

UNIT = Path(__file__).parents[2] / "deploy" / "trmon.service"
ALLOW = 0x7FFF0000
EPERM_ELSE = 0x00050000 | errno.EPERM
EQUAL = 4
PR_SET_MDWE, REFUSE_EXEC_GAIN = 65, 1
SECOND_STAGE = "--restrict"


class Comparison(ctypes.Structure):
    """libseccomp's scmp_arg_cmp: a condition of an argument."""

    _fields_ = [
        ("argument", ctypes.c_uint),
        ("operator", ctypes.c_int),
        ("value", ctypes.c_uint64),
        ("other", ctypes.c_uint64),
    ]


def directives(name: str) -> list[str]:
    """Return the values of a directive of the unit, in order."""
    return re.findall(rf"^{name}=(.*)$", UNIT.read_text(), re.MULTILINE)


def system_calls() -> set[str]:
    """Return the system calls that the unit allows."""
    allowed = set(_expand("@default"))
    for value in directives("SystemCallFilter"):
        names = {call for name in value.removeprefix("~").split() for call in _expand(name)}
        allowed = allowed - names if value.startswith("~") else allowed | names
    return allowed


def _expand(name: str) -> Iterator[str]:
    if not name.startswith("@"):
        yield name
        return
    shown = subprocess.run(
        ["systemd-analyze", "syscall-filter", name], check=True, capture_output=True, text=True
    ).stdout
    for line in shown.splitlines()[1:]:
        if line.strip() and not line.strip().startswith("#"):
            yield from _expand(line.strip())


def restrict_system_calls(allowed: set[str], *, families: list[int]) -> None:
    """Let every other system call of this process and its children fail with EPERM."""
    library = ctypes.CDLL("libseccomp.so.2", use_errno=True)
    library.seccomp_init.restype = ctypes.c_void_p
    library.seccomp_rule_add_array.argtypes = [
        *(ctypes.c_void_p, ctypes.c_uint32, ctypes.c_int, ctypes.c_uint),
        ctypes.c_void_p,
    ]
    library.seccomp_load.argtypes = [ctypes.c_void_p]
    rules = library.seccomp_init(EPERM_ELSE)
    for name in sorted(allowed - {"socket", "unshare", "setns"}):  # RestrictNamespaces takes the last two away
        number = library.seccomp_syscall_resolve_name(name.encode())
        if number >= 0:
            assert library.seccomp_rule_add_array(rules, ALLOW, number, 0, None) == 0, name
    for family in families:
        number = library.seccomp_syscall_resolve_name(b"socket")
        condition = Comparison(0, EQUAL, family, 0)
        assert library.seccomp_rule_add_array(rules, ALLOW, number, 1, ctypes.byref(condition)) == 0
    assert library.seccomp_load(rules) == 0


def mount(state: str) -> None:
    """Make everything read-only in this mount namespace but the state, and hide other processes."""
    for arguments in (
        ["--bind", state, state],
        ["-o", "remount,bind,ro", "/"],
        ["-t", "proc", "-o", "subset=pid,hidepid=invisible", "proc", "/proc"],
    ):
        subprocess.run(["mount", *arguments], check=True)


def main(arguments: list[str]) -> None:
    """Confine this process in two stages, and run the command."""
    this = [sys.executable, __file__]
    if arguments[0] == SECOND_STAGE:
        os.umask(int(directives("UMask")[0], 8))
        families = [getattr(socket, name) for name in directives("RestrictAddressFamilies")[0].split()]
        allowed = system_calls()
        assert ctypes.CDLL(None, use_errno=True).prctl(PR_SET_MDWE, REFUSE_EXEC_GAIN, 0, 0, 0) == 0
        restrict_system_calls(allowed, families=families)
        os.execvp(arguments[1], arguments[1:])
    state, *command = arguments
    mount(state)
    dropped = ["setpriv", "--no-new-privs", "--bounding-set=-all", "--inh-caps=-all", "--ambient-caps=-all"]
    os.execvp(dropped[0], [*dropped, *this, SECOND_STAGE, *command])


if __name__ == "__main__":
    main(sys.argv[1:])
