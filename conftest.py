"""pytest allows this in the topmost conftest only."""

pytest_plugins = ["pytester"]
