"""The files that runs leave behind (folders, manifests, journals, pickles), and their readers."""
