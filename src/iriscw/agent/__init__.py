"""Assembly of what freezes and thaws the processes of one machine."""
