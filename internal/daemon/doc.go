// Package daemon assembles plegd: it runs the tasks (relist loop, Status, fresh dial,
// judge, servers) under one roof, gathers their values into facts, asks package health
// for the verdict, and reports it to the log, to systemd and to clients.
//
// It holds no rule of the kubelet's and no reason: those are health's. Nothing
// here stands between the runtime's answer and the relist loop.
package daemon
