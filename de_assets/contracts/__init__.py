"""One pandera model per dataset: the only place for its columns, documentation, rules, keys, owner and personal data.

`Config.name` is `<layer>.<dataset>`. `Config.metadata` holds `owner`, `key` (identity of a row), `partitioned_by`
(physical layout), `rules` (row rules over several columns, as SQL that is true for a valid row), `freshness` (how
soon its data comes), `sla` (how soon its work is done), `consumers` (who reads it outside of the graph) and `properties`
(of the Delta table). A field's `metadata={"personal": True}` marks personal data: masked in previews, errors and examples.
"""
