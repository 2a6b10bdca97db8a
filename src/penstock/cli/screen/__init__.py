"""The output of commands: pages of blocks that events fill, and the renderer that draws them."""
