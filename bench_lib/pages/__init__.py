"""What people read: pages, terminal, reports, notebook cells."""
