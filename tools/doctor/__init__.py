"""gloo-bypass-doctor: says what each way of moving packets lacks on this machine, and the command that mends it. Only
reads."""
