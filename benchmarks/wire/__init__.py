"""Lines over the network: every medium beside a bare socket and beside the client of `websockets`; what `bench_network.py` measures."""
