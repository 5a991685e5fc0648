"""The gateway: local `claude` processes for clients elsewhere, behind a door.

Each module owns one noun: `listeners` where it can be reached, `door` who may come in, `arrival` what a client says first, `choices` what
it may choose, `limits` how much of everything, `plain_session` a process whose life is its connection's, `link_session` one that outlives
it, `roster` all of them, `health` and `metrics` what may be seen from outside, `gateway` the whole.
"""
