"""Systems outside the platform, as the platform sees them: what they deliver, in which shape and order.

`landing` is the drop folder's contract; `access_log` turns a web server's log into landed visits; `simulator` feeds
the drop folder, the broker and the database with a seeded world whose every defect is known.
"""
