"""The program for `spark-submit`, and `python -m fetchbox.lake`: queries, reports and retention of the lake."""

import sys

from pipeline.job import main

if __name__ == "__main__":
    sys.exit(main())
