"""The shim each embedded server is started through: it binds the server's life to its parent's, then becomes it.

Run as a script by `processes.spawn`, alone and before anything of Headrace is imported, so that nothing of this happens
between fork and exec of a process that has threads. It always holds that the server gets `--death` as soon as the
thread that spawned it ends, that it runs as `--uid` where one is given, and that it never starts for a parent that is
already gone.
"""

import argparse
import ctypes
import os

_PR_SET_PDEATHSIG = 1
_PR_SET_KEEPCAPS = 8
_PR_CAP_AMBIENT = 47
_PR_CAP_AMBIENT_RAISE = 2
_CAPABILITY_VERSION_3 = 0x20080522
_ORPHANED = 127


class _Header(ctypes.Structure):
    _fields_ = (("version", ctypes.c_uint32), ("pid", ctypes.c_int))


class _Sets(ctypes.Structure):
    _fields_ = (("effective", ctypes.c_uint32), ("permitted", ctypes.c_uint32), ("inheritable", ctypes.c_uint32))


def _become(libc: ctypes.CDLL, uid: int, gid: int, capability: int) -> None:
    """Give up root for `uid`; keep one capability (a number below 32) through the exec, or none when it is -1."""
    if capability >= 0:
        libc.prctl(_PR_SET_KEEPCAPS, 1, 0, 0, 0)
    os.setgroups([])
    os.setgid(gid)
    os.setuid(uid)
    if capability >= 0:
        mask = 1 << capability
        sets = (_Sets * 2)(_Sets(mask, mask, mask), _Sets(0, 0, 0))
        libc.capset(ctypes.byref(_Header(_CAPABILITY_VERSION_3, 0)), ctypes.byref(sets))
        libc.prctl(_PR_CAP_AMBIENT, _PR_CAP_AMBIENT_RAISE, capability, 0, 0)


def main() -> None:
    """Parse the shim's own arguments, take on the identity asked for, tie the knot, and exec the rest of the line."""
    parser = argparse.ArgumentParser(prog="launch")
    parser.add_argument("--parent", type=int, required=True)
    parser.add_argument("--death", type=int, required=True)
    parser.add_argument("--uid", type=int, default=-1)
    parser.add_argument("--gid", type=int, default=-1)
    parser.add_argument("--capability", type=int, default=-1)
    parser.add_argument("command", nargs=argparse.REMAINDER)
    options = parser.parse_args()
    libc = ctypes.CDLL(None, use_errno=True)
    if options.uid >= 0:
        _become(libc, options.uid, options.gid, options.capability)
    # after the change of identity, which clears it; and before the check, or a parent that dies in between is missed
    libc.prctl(_PR_SET_PDEATHSIG, options.death, 0, 0, 0)
    if os.getppid() != options.parent:
        os._exit(_ORPHANED)
    command = options.command[1:] if options.command[:1] == ["--"] else options.command
    os.execv(command[0], command)  # noqa: S606 - no shell is wanted here


if __name__ == "__main__":
    main()
