"""What programs share that serve clients on other machines: gateway, worker of a fleet, bridge. `door` admits, `listeners` accept.

`following` is for those who watch a session.
"""
