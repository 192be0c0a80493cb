"""How fast is it here? Figures as shares of what SQLite itself can do on the same disk in the same run."""
