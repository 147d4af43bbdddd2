"""Proof of the proof: small defects, planted one at a time in a copy of the code, and whether a test notices them.

`make sabotage` runs it; `defects/<family>.yaml` is the list. A defect nobody notices is a promise that nobody keeps.
"""
