"""Single executions that are kept in files and executed again."""
