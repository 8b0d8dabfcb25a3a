"""Single executions kept in files, and executed again."""
