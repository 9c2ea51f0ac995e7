"""What moves runs on: it claims what is due, reads, decides by one pure function, records, does what follows."""
