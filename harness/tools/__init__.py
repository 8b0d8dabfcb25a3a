"""The host halves of the bring-up tools: what their observers wrote becomes tables, pages and archives."""
