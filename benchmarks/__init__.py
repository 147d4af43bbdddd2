"""Figures against the platform's bars: `make bench`, or `python -m benchmarks [CASE…] [--size small]`.

Ratios are taken within one run: same machine, same data, same layout, contenders in turns. Nothing here is a test.
"""
