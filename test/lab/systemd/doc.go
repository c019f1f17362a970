// Package systemd boots a systemd in which the units of plegd and of containerd run as on a node.
package systemd
