# SPDX-License-Identifier: BSD-2-Clause
from __future__ import annotations

import pytest

from ipoibu.base.errors import UsageError
from ipoibu.base.interface_name import check_name


@pytest.mark.parametrize("name", ["ib0", "ib0.8001", "a", "x" * 15, "ib-0_1"])
def test_a_name_that_the_kernel_takes_is_returned(name: str) -> None:
    assert check_name(name) == name


@pytest.mark.parametrize(
    "name",
    [
        "",
        ".",
        "..",
        "all",
        "default",
        "x" * 16,
        "a/b",
        "a b",
        "a\tb",
        "ib%d",
        "a:1",
        "-ib0",
        "a\0b",
        "ä" * 8,
        "\udcff",
    ],
)
def test_a_name_that_the_kernel_refuses_is_a_usage_error_of_one_line(name: str) -> None:
    with pytest.raises(UsageError) as caught:
        check_name(name)
    assert "\n" not in str(caught.value)
    assert caught.value.exit_code == 2
