"""Groups of thread blocks."""

from typing import Dict, List


class ThreadBlockGroup:
    """Thread blocks that share the operations given to the group: each does its slice."""

    def __init__(self, tb_list: List[int]) -> None:
        self.tb_list: List[int] = tb_list
        self._tb_id: Dict[int, int] = {}
        for index, tb in enumerate(tb_list):
            if tb in self._tb_id:
                raise ValueError(f"Duplicate thread block found at index {index}: {tb}")
            self._tb_id[tb] = index

    def get_internal_id(self, tb: int) -> int:
        """Return the place of a thread block in the group."""
        if tb not in self._tb_id:
            raise ValueError(f"Thread block {tb} not found in thread block group")
        return self._tb_id[tb]

    def numtb(self) -> int:
        """Return the number of thread blocks."""
        return len(self.tb_list)
