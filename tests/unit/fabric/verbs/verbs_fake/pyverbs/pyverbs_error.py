# SPDX-License-Identifier: BSD-2-Clause
class PyverbsError(Exception):
    pass


class PyverbsRDMAError(PyverbsError):
    def __init__(self, msg: str, error_code: int = -1) -> None:
        super().__init__(msg)
        self.error_code = error_code
