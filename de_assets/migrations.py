"""The migrations of the blog's tables: what shall take the place of what. How far each has got, its table says (`de migrate`).

One that is over, or was given up, leaves this page together with the metadata of its asset.
"""

import pyspark.sql.types as T

from de_resources.migrations import rename

DEVICE_TITLE = rename("title_for_full_name", "full_name", "title", T.StringType())
"""`full_name` sounds like a person's. The provider's next format says `title`."""
