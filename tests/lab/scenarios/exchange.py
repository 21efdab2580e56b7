# SPDX-License-Identifier: BSD-2-Clause
"""Two machines exchange a question and an answer."""

import json

from ipoibu.lab.machines.inside.meeting import get, meet, put


def answer(text: str) -> None:
    """Print the question the other machine asks, and answer `text`."""
    meet("start")
    print(json.dumps({"question": get("question")}))
    put("answer", text)
