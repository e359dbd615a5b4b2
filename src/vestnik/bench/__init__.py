"""Benchmarks: each starts a fresh server of its own, measures, and prints one JSON object.

Ratios are taken within one run, beside a rival on the same server, because absolute figures are those of a machine.
"""
