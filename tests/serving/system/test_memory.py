"""How much memory a process may use: the machine's, or less where a cgroup says so."""

import os

import pytest

from service.system.memory import find_memory_bytes

MIB = 1 << 20
PHYSICAL = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


@pytest.mark.parametrize(
    ("membership", "limits", "expected"),
    [
        pytest.param("0::/\n", {"memory.max": 64 * MIB}, 64 * MIB, id="version 2, in a container"),
        pytest.param("0::/a/b\n", {"a/b/memory.max": "max", "a/memory.max": 32 * MIB}, 32 * MIB, id="version 2, outer"),
        pytest.param("0::/host/only\n", {"memory.max": 16 * MIB}, 16 * MIB, id="the path is the host's"),
        pytest.param(
            "5:cpu:/x\n4:memory:/x\n0::/\n", {"memory/x/memory.limit_in_bytes": 8 * MIB}, 8 * MIB, id="version 1"
        ),
        pytest.param(
            "4:memory:/\n", {"memory/memory.limit_in_bytes": (1 << 63) - 4096}, PHYSICAL, id="none, version 1"
        ),
        pytest.param("0::/\n", {"memory.max": "max"}, PHYSICAL, id="none, version 2"),
        pytest.param(None, {}, PHYSICAL, id="no cgroups"),
    ],
)
def test_the_tightest_limit_counts(tmp_path, membership, limits, expected):
    """The limit of the process's own cgroup, or of one around it, or what the machine has."""
    if membership is not None:
        (tmp_path / "proc/self").mkdir(parents=True)
        (tmp_path / "proc/self/cgroup").write_text(membership)
    for name, limit in limits.items():
        file = tmp_path / "sys/fs/cgroup" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"{limit}\n")
    assert find_memory_bytes(tmp_path) == expected
