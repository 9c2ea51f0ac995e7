"""Redis: the only room that connects to it, and the only one that spells its keys.

`clients` is redis-py with its errors translated, for what is rare. `pipe` is a lean connection for what is frequent,
`link` keeps one alive and loads the scripts. `keys` names every key. A transition is one script in `lua/`, declared in
`scripts` with the names of its keys and arguments.
"""
