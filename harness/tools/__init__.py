"""The host halves of the bring-up tools: they turn the records of their observers into tables, pages and archives."""
