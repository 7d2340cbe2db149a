error: network.mode = "proxy" is not there yet
help: use "none" or "host"
