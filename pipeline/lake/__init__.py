"""Where everything lies in the lake, and how it is found again."""
