error: network.mode = "proxy": runsc has a network of its own inside, in which coop's proxy cannot listen
help: sandbox.runtime = "runc", the native back end, or network.mode = "none"
