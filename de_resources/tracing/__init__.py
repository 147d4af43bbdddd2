"""Row lineage: from one row of a dataset to the rows that it was made of, and to the run that made each (Fine-Grained Tracker).

Nothing is written for it. Which commit brought a row's file stands in the table's log, with the run that made it; which rows of
an input belong to it follows from the values that both have in common, or from a condition that the asset declares.

| module      | idea                                                                     |
|-------------|--------------------------------------------------------------------------|
| `makers`    | from a file of a table to the commits and runs that its rows come from   |
| `condition` | which rows of an input belong to a row: by declaration, or by equal values |
| `trace`     | the walk upstream                                                        |
| `page`      | what was found as one page                                               |
"""
