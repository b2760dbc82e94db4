"""A home internet on one machine: hosts as network namespaces, joined by links like those between homes.

``schema`` says what a lab is and needs nothing but msgspec; ``running`` makes one, on Linux and as root.
``docs/NETLAB.md`` is the manual.
"""
