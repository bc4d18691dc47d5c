"""What a wrong output looks like, and where."""

from pytest_fib.diagnosis import _parts
from pytest_fib.diagnosis._agreement import (
    agreed as agreed,
    as_at_other_sizes as as_at_other_sizes,
    claims_more as claims_more,
    only_wrong as only_wrong,
    says_the_same as says_the_same,
    wrong_share as wrong_share,
)
from pytest_fib.diagnosis._diagnose import (
    VAGUE_PATTERNS as VAGUE_PATTERNS,
    diagnose as diagnose,
    explain as explain,
)
from pytest_fib.diagnosis._experiments import Conditions as Conditions
from pytest_fib.diagnosis._hypotheses import input_hypotheses as input_hypotheses
from pytest_fib.diagnosis._parts import (
    first_part as first_part,
    has_part as has_part,
    saying as saying,
    with_guessed_tiles as with_guessed_tiles,
    without_guess as without_guess,
    without_rounding as without_rounding,
)
from pytest_fib.diagnosis._wrong_output import (
    CallContext as CallContext,
    Failure as Failure,
    WrongOutput as WrongOutput,
    is_readable as is_readable,
    take as take,
)

parts = _parts
