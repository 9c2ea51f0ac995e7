"""What comes from outside: a run is started, its gates are opened with secrets or events, it is cancelled."""
