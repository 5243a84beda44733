"""The leaderboard: rows from records and publications, as Markdown and as a page with filters."""
