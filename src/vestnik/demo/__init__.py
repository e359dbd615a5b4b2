"""The demo: the whole service on the sandbox, forty channels, and four acts that show what it promises."""
