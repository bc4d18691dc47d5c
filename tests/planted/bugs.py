"""All planted bugs."""

import tests.planted.attention
import tests.planted.dense
import tests.planted.indexed  # noqa: F401
from tests.planted.planting import PLANTED

BUGS = list(PLANTED.values())
