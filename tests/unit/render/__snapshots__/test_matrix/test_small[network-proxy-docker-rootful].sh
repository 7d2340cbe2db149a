error: network.mode = "proxy": the proxy is a process of coop's, which nothing that is pasted starts
help: coop run does, on this engine too; or network.mode = "none"
