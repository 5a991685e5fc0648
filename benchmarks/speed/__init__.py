"""Ours, the official SDK and the limit, side by side: what `bench_speed.py` measures, reports and checks."""
