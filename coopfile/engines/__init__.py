"""Container engines of this machine: finding, asking, building for and running on them."""
