"""The queues: how work is handed out under a lease, comes back from the dead, and ends once.

`work` holds what all kinds share: a claim, its outcome, the retry rule, the heartbeat. `streams` hands out resources
and task jobs of the consumer group; `files` hands out file jobs of priority lists. `lanes` joins both for a worker.
`announcements` publishes the end of a job where its worker did not.
"""
