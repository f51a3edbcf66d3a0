"""The operands of operations. The operations themselves are the compiler's."""

from .types import *
