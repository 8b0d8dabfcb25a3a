"""What watches a training: each looks at the steps that it is for, and writes its own files."""
