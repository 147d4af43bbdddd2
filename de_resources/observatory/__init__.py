"""The observatory: how all datasets are, and were, as one static site. It knows definitions and Dagster's instance, no blog.

Three steps, of which the last two are pure: `read` asks the instance, `health`, `series` and `lineage` judge what was read, and
`site.pages_of` writes it as HTML.
"""
