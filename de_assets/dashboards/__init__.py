"""The code location of the visualization team: Isolated Sequencer, data-based strategy.

It knows the gold tables by key and place only, imports nothing of `de_assets` outside this folder, and loads and runs
when that location is broken. It reads gold without a JVM.
"""
