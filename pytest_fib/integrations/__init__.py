"""Libraries whose calls can be routed through `apply` and recorded; each is installed by name."""
