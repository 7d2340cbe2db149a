"""Root file systems on disk: images, layers, stages, and the store that keeps them."""
