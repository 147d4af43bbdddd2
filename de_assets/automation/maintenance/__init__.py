"""Jobs that keep the lake in shape, or take a dataset back: compaction, restore, versions, weeks."""
