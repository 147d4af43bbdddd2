"""Imported last by the process that workers are forked from: what is loaded is never garbage, and stays one copy for all."""

import gc

gc.collect()
gc.freeze()
