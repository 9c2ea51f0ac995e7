"""What operators see and steer: snapshots, logs, events, health, dead letters; and the duties that keep it true."""
