"""What is to be seen of the jobs from outside: metrics, history, alerts, traces, log events."""
