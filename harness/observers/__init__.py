"""Watches a training: each observer looks at the steps that it is for, and writes its own files."""
