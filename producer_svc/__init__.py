"""The producer: the files of a directory become file jobs on the priority lists."""
