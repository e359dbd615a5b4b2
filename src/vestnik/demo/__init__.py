"""The demo: the whole service on the sandbox, forty channels, and eight acts that show what it promises."""
