"""What the cheats that answer for the framework share."""

from dataclasses import replace

from pytest_fib.sandbox._runner import Runner


def claim(kind, **changes):
    """Have answers to such requests say what these functions make of them."""
    answer = Runner._answer

    def lying(self, request, *rest):
        reply = answer(self, request, *rest)
        if not isinstance(request, kind):
            return reply
        return replace(reply, **{name: change(reply) for name, change in changes.items()})

    Runner._answer = lying
